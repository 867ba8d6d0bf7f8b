"""A small training that every machine can run: the standard library's sources go in, a run folder comes out."""
