"""What is trained: built-in decoder, config.json, factory; the step; optimizers."""
