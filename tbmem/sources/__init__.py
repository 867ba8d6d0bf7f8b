"""Readers of counters, live objects and files into the records of the model."""
