"""CUDA memory snapshots (pickles, nothing run) -> AllocationTimeline."""
