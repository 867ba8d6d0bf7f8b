"""What torch knows: storages, modules, autograd graphs, memory history, profiler state."""
