"""Adapters: a MemoryCallback driven by the events of a framework's trainer, one file per framework.

Nothing is imported here: each adapter imports its own framework, and says which extra installs it.
"""
