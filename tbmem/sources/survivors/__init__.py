"""Which lines allocate what survives its step (CPU: profiler; CUDA/XPU: memory history)."""
