"""Simulates the native CUDA caching allocator of torch (``c10/cuda/CUDACachingAllocator.cpp``) without a GPU."""
