"""Tracks storages of fake tensors: an allocation log with module, phase, category and source lines."""
