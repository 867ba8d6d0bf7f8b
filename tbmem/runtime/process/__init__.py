"""This process: error guard, pid over forks, rank, run folder, optimizer hook."""
