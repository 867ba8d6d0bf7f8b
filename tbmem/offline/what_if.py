"""Replays recordings of files and folders under other settings of the allocator."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tbmem.analysis.allocator.settings import parse_settings
from tbmem.analysis.allocator.what_if import WhatIf, what_ifs
from tbmem.errors import TbmemError, UsageError
from tbmem.model.gpus import Gpu
from tbmem.sources.recording import read_recording
from tbmem.sources.runs.recording_files import find_recordings


def replay_all(
    paths: Sequence[str | os.PathLike[str]],
    texts: Sequence[str],
    gpu: Gpu | None = None,
    on_skip: Callable[[str], None] | None = None,
) -> dict[str, tuple[WhatIf, ...]]:
    """Replay recordings under other settings, written as in PYTORCH_ALLOC_CONF; by the recording's short name.

    ``on_skip`` is called with the reason for which a file of a folder, or a device, was passed over.

    Raises:
        ConfigError: A text is not what torch takes.
        UsageError: A file that was named has nothing to replay, or no file of a folder has.
        FileFormatError: A file that was named is damaged or something else.
    """
    settings = list(dict.fromkeys(parse_settings(text) for text in texts))
    done: dict[str, tuple[WhatIf, ...]] = {}
    refused: list[str] = []
    for found in find_recordings(paths):
        try:
            skip = None if on_skip is None else partial(_skip_device, on_skip, found.path)
            done[found.name] = what_ifs(read_recording(found.path).timeline, settings, gpu, skip)
        except TbmemError as error:
            reason = f"{found.path}: {error}" if isinstance(error, UsageError) else str(error)
            if found.named:
                raise UsageError(reason) from error
            refused.append(reason)
    if not done and refused:
        raise UsageError(refused[0])
    for reason in refused:
        if on_skip is not None:
            on_skip(reason)
    return done


def _skip_device(on_skip: Callable[[str], None], path: Path, reason: str) -> None:
    on_skip(f"{path}: {reason}")
