"""Exceptions of tbmem: raised before or outside of a training loop, within which they are logged instead."""

from __future__ import annotations

from collections.abc import Iterable


class TbmemError(Exception):
    """Base class of tbmem's exceptions."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows of it instead of a traceback: the message says what, where and what to do."""
        return [f"{type(self).__name__}: {self}"]


class ConfigError(TbmemError, ValueError):
    """A configuration key is unknown, a value does not fit, or a config file cannot be read."""


class RunFolderError(TbmemError, OSError):
    """The folder for a run's files cannot be created or written."""


class FileFormatError(TbmemError, ValueError):
    """A file is damaged, cut off, something else, or has a newer schema."""


class UnsafeFileError(FileFormatError):
    """A pickle requests code to be run, which no memory snapshot does; nothing was run."""


class NoMemoryEventsError(FileFormatError):
    """A trace without allocations, because the profiler was not set to record them."""


class UsageError(TbmemError, RuntimeError):
    """A method was called at the wrong time."""


class MissingDependencyError(TbmemError, ImportError):
    """A required optional package is not installed."""


_LONGEST = 200
_ALIKE = 0.65
"""Share of their letters that a name and a misspelt one have in common, ``difflib.SequenceMatcher.ratio``."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``'did you mean gpt2?'`` of a misspelt name; empty where none of the ``known`` ones is like it."""
    close = closest(name, known)
    return f"did you mean {close}?" if close else ""


def closest(name: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """The known name that a misspelt one is like by such a share; empty where there is none."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=alike)), "")


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind where it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def described(error: BaseException) -> str:
    """Kind and first line of an error that a damaged file has caused somewhere: ``'KeyError: 'size''``."""
    kind, line = type(error).__name__, first_line(error)
    return f"{kind}: {line[:_LONGEST]}" if line != kind else kind
