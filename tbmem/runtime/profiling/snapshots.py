"""Memory history of the device in use, and snapshots of it."""

from __future__ import annotations

from pathlib import Path

import torch

from tbmem.config.schema import SnapshotConfig
from tbmem.present.lines import get_logger
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.sources.torch_state.memory_history import MemoryHistory


class Snapshots:
    """Memory history of the device in use, and snapshots of it."""

    def __init__(self, config: SnapshotConfig, folder: RunFolder, written: list[Path]) -> None:
        self.folder = folder
        self._config = config
        self._written = written
        self.history: MemoryHistory | None = None
        """History of the device in use; ``None`` before one is used, or if snapshots are off."""

    @property
    def waits_for_history(self) -> bool:
        """Whether the history of the run is requested and no supporting device is in use yet."""
        wanted = self._config.enabled and self._config.history == "run" and self.history is None
        return wanted and (torch.cuda.is_available() or torch.xpu.is_available())

    def find_history(self) -> None:
        """Look for a device in use; called repeatedly, since a program may use its accelerator late."""
        if self._config.enabled and self.history is None:
            self.history = MemoryHistory.of_this_process(self._config.max_entries)
            if self.history is not None and self._config.history == "run":
                self.history.start()

    def write(self, label: str, *, must: bool = False) -> Path | None:
        """Take a snapshot now, which is written in the background; ``None`` if no device supports one.

        ``must``: dropped last if the disk does not keep up.
        """
        history = self.history or MemoryHistory.of_this_process(self._config.max_entries)
        if history is None:
            line = (
                "snapshot %r: no device here keeps memory history (CUDA and XPU do); use tbmem.record() or a profiler"
                " window, whose trace holds the same allocations"
            )
            get_logger().info(line, label)
            return None
        path = self.folder.snapshot(label)
        data, is_whole = history.pickled(redaction=self.folder.redaction)
        self.folder.write(path, data, must=must, then=lambda: self._add(path))
        if not is_whole:
            self.warn_of_overflow(path.name)
        return path

    def _add(self, path: Path) -> None:
        self._written.append(path)
        get_logger().info("snapshot written: %s", path.name)

    def write_at_oom(self) -> None:
        """Write a snapshot after an out-of-memory error, if configured."""
        self.find_history()
        if self._config.on_oom and self.history is not None:
            self.write("oom", must=True)

    def warn_of_overflow(self, name: str) -> None:
        """Warn that the history in a file is incomplete."""
        line = (
            "snapshot: the history in %s is not whole: snapshot.max_entries=%d events are full, earlier ones are lost;"
            " raise it or record fewer steps"
        )
        get_logger().warning(line, name, self._config.max_entries)

    def begin_step(self) -> None:
        """Record from here on only, unless the history of the run is recorded.

        The ring buffer then holds one step: a full one takes some 40 MiB of the host, and until it is full that looks
        like a leak of the program.
        """
        if self.history is not None and self._config.history != "run":
            self.history.stop()
            self.history.start()

    def end_history(self) -> None:
        """Stop recording history, unless it is that of the run."""
        if self._config.history != "run":
            self.stop()

    def stop(self) -> None:
        """Stop recording history."""
        if self.history is not None:
            self.history.stop()
