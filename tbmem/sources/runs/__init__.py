"""Run folders, their recordings and live logs: found and read."""
