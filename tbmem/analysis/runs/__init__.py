"""Analysis of runs by their live logs: status, report, checks, comparison."""
