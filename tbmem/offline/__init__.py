"""What is done with files after a run: find and read recordings, analyse, compare and convert them; without torch."""
