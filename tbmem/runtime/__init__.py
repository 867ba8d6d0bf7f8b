"""What runs inside a training process: steps go in, files, lines and a summary come out; training is never broken."""
