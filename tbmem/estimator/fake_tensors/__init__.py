"""Torch on fake CUDA tensors: mode, fake torch.cuda, guards."""
