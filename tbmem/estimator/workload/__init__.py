"""Workload of a job: model, batch and loss; optimizers; the training step."""
