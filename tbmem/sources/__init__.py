"""The machine's own counters and live tensors go in, the model's records come out."""
