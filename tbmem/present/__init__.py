"""Records and conclusions go in, what a person or a program reads comes out."""
