"""Allocations of a training without a GPU: a child process runs it on fake tensors."""
