"""One rank of many: FSDP/DDP/TP/EP/PP."""
