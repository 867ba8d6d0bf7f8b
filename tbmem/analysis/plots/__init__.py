"""Curves and bands of a timeline, downsampled for a screen."""
