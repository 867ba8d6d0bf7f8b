"""Rehearses a program on a GPU that is not there: torch's own CUDA allocator over a device that computes nothing."""
