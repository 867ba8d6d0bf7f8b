"""The user's program, looked at without running it: whose file, frames, syntax, raw introspection (no torch)."""
