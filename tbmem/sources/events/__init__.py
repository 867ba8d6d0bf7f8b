"""What both recording readers share: gzip, alloc/free pairing, nesting, annotations and phases."""
