"""Why: cause, holder, wording and advice for a leak, a spike, an out-of-memory."""
