"""Records as pieces of HTML that a notebook displays."""
