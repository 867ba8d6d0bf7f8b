"""Storages -> allocation log with module, phase, category, line."""
