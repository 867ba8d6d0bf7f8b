"""Measured beside predicted."""
