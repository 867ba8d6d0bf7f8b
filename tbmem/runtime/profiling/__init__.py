"""Schedule, one profiler window, address recorder."""
