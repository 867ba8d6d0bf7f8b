"""Reads CUDA memory snapshots into an AllocationTimeline without running their pickles."""
