"""Memory counters of devices, host and child processes."""
