"""Says once, for all files of a run, that the disk refuses them, and once that it takes them again."""

from __future__ import annotations

from tbmem.present.lines import get_logger

_TOLD = 3
"""Times in a run that a refusing disk has a line on the console; later ones are in the summary."""


class FolderTaken(OSError):
    """Another run has claimed the folder, or begun its log, since this one has."""


class DiskNotice:
    """Lines on the console about the disk of one run, few of them however often it fails."""

    def __init__(self) -> None:
        self._times = 0
        self._is_refusing = self._has_told_deleted = False

    def refused(self, name: str, error: OSError) -> None:
        """A file could not be written."""
        if self._is_refusing:
            get_logger().debug("%s cannot be written: %s", name, error)
            return
        self._is_refusing = True
        self._times += 1
        if self._times <= _TOLD:
            get_logger().warning(
                "%s cannot be written: %s; what is to be written waits in memory and is tried again; training goes on",
                *(name, error.strerror or error),
            )

    def recovered(self, line: str) -> None:
        """Files are written again."""
        if self._is_refusing and self._times <= _TOLD:
            get_logger().warning("%s", line)
        self._is_refusing = False

    def deleted(self) -> None:
        """Files were deleted while the run writes to them."""
        if not self._has_told_deleted:
            self._has_told_deleted = True
            get_logger().warning(
                "the run's files were deleted during the run; they are made again, and what was in them is gone;"
                " training goes on"
            )

    def told(self, line: str) -> None:
        """Something else happened to the files."""
        self._times += 1
        if self._times <= _TOLD:
            get_logger().warning("%s", line)
