"""Estimates the memory of a training run on fake tensors, before there is a GPU."""
