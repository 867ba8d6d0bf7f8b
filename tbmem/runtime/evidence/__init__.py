"""Gathers evidence on suspected growth for a few steps."""
