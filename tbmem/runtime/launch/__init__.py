"""`tbmem run`: starts a script, counts its steps."""
