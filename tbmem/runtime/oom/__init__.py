"""Detects, explains and records an out-of-memory; SIGTERM."""
