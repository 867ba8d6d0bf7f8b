"""Command line of tbmem, with one module per command."""
