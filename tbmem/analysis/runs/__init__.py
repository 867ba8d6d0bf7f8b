"""What live logs say of a run: status, series, checks."""
