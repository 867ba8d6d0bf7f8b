"""Run folders, their recordings and live logs."""
