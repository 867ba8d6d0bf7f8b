"""The Python standard library's own sources go in, batches of byte sequences come out."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch

VOCABULARY = 256
"""Tokens are bytes."""
_ENOUGH = 4_000_000


def load_text() -> torch.Tensor:
    """Up to 4 MB of real text that is on every machine: the standard library's modules.

    Returns:
        One byte per element, shape ``(bytes,)``, dtype uint8.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= _ENOUGH:
            break
    return torch.frombuffer(text[:_ENOUGH], dtype=torch.uint8)


def draw_batch(
    text: torch.Tensor, sequences: int, length: int, generator: torch.Generator, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random pieces of the text and, for each byte, the one that follows.

    Args:
        text: All bytes, shape ``(bytes,)``.
        sequences: Batch size.
        length: Bytes per sequence.
        generator: Source of the random positions.
        device: Where the batch shall lie.

    Returns:
        Inputs and targets, both of shape ``(sequences, length)``, dtype int64.
    """
    starts = torch.randint(len(text) - length - 1, (sequences, 1), generator=generator)
    pieces = text[starts + torch.arange(length + 1)].to(device, torch.int64)
    return pieces[:, :-1], pieces[:, 1:]
