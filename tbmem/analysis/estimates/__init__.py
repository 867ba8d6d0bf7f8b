"""Peaks, fit and timeline of an estimate, from the events of a simulated run."""
