"""The CUDA caching allocator without a GPU: allocs and frees go in; segments, reserved bytes and failures come out.

Rules are those of torch's native backend (``c10/cuda/CUDACachingAllocator.cpp``), in torch's own words.
"""
