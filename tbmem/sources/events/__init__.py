"""Shared by the trace and snapshot readers: compressed files, pairing of frees, annotations and phases."""
