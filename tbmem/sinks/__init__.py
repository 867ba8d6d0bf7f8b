"""Sinks: one thin class for each of the other loggers, by name in ``output.sinks``."""
