"""Samples -> growth, spikes, thresholds -> Finding; online, bounded memory."""
