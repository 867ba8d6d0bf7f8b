"""Words on a command line go in; one small module per command calls what lies below, prints and exits."""
