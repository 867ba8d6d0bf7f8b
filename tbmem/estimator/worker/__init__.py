"""The child process that executes jobs, and its client."""
