"""Curves, bands and ranges of a timeline, thinned for a screen."""
