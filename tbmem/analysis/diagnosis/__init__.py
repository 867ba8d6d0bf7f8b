"""Causes, holders, texts and advice for a leak, a spike or an out-of-memory."""
