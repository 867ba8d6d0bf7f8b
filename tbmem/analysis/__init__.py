"""The model's records go in, conclusions come out; pure functions and plain state, no files, no clock, no torch."""
