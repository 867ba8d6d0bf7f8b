"""Detector of memory patterns in a series of samples: online, in bounded memory."""
