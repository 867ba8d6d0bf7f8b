"""``python -m tbmem``: the command line."""

from tbmem.cli.entry import main

if __name__ == "__main__":
    main()
