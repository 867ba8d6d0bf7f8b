"""Reads torch.profiler traces into an AllocationTimeline."""
