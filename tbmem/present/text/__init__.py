"""Terminal and report texts."""
