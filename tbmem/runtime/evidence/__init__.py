"""Looks into a suspicion for a few steps."""
