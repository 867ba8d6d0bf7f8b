"""Schedule and windows of the profiler, and the recorder of tensor addresses."""
