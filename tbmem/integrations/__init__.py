"""Adapters that drive a MemoryCallback by the events of a framework's trainer, one file per framework."""
