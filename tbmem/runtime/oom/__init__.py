"""Detects, explains and records out-of-memory errors; handles SIGTERM."""
