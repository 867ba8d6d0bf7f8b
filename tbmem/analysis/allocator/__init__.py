"""Simulates the CUDA caching allocator without a GPU.

The rules are those of torch's native backend (``c10/cuda/CUDACachingAllocator.cpp``), in torch's own words.
"""
