"""Which Python objects retain more and more memory, under which name, grown by which line."""
