"""Torch.profiler JSON traces -> AllocationTimeline."""
