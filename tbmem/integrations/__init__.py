"""A framework's trainer goes in, its events drive a MemoryCallback: one thin adapter per framework.

Nothing is imported here: each adapter imports its own framework, and says which extra installs it.
"""
