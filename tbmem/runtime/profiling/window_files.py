"""What a profiler window has recorded, from its end until it is written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tbmem.model.address_book import AddressBook
from tbmem.model.files import address_book_name, compress
from tbmem.model.trace_additions import TraceAdditions
from tbmem.runtime.process.run_folder import RunFolder


@dataclass(slots=True, kw_only=True)
class WindowFiles:
    """A window's records in memory; ``write`` makes them files, in the background."""

    folder: RunFolder
    trace: Path
    content: BinaryIO
    """The trace as torch has exported it."""
    size: int
    """Bytes of memory that all of it takes."""
    additions: TraceAdditions | None
    book: AddressBook | None = None
    snapshot: tuple[Path, bytes] | None = None

    def write(self) -> tuple[Path, Path | None, Path | None]:
        """Write trace, address book and snapshot, each completely or not at all; after an OSError call it again.

        Returns:
            The paths of the three.
        """
        snapshot = self.snapshot and self.folder.write_now(self.snapshot[0], partial(_dump, self.snapshot[1]))
        book = None
        if self.book is not None:
            beside = self.trace.with_name(address_book_name(self.trace.name))
            book = self.folder.write_now(beside, self.book.save)
        if self.additions is not None:
            self.additions.append_to(self.content)
            self.additions = None
        try:
            self.folder.write_now(self.trace, self._compress)
        except OSError:
            # without the trace they are of no use, and take room on a disk that may be full
            for path in filter(None, (book, snapshot)):
                path.unlink(missing_ok=True)
            raise
        return self.trace, book, snapshot

    def close(self) -> None:
        """Free the memory."""
        with suppress(OSError):  # what it has not taken is lost with it
            self.content.close()

    def _compress(self, target: Path) -> None:
        self.content.seek(0)
        compress(self.folder.redaction.trace_reader(self.content), target)


def _dump(data: bytes, path: Path) -> None:
    path.write_bytes(data)
