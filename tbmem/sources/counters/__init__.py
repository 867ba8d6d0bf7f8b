"""Live counters of devices, host and child processes -> MemorySample."""
