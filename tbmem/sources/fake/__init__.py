"""A job goes in; every allocation of its training comes out, though nothing was computed and no GPU was there.

A child process builds the model and runs its steps on torch's fake tensors, which have shapes and no contents.
"""
