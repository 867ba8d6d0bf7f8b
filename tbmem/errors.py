"""The error tree: what can go wrong goes in, one clear line (what, where, what to do) comes out.

TbmemError
├── ConfigError             a key, a value or a config file is wrong            (also a ValueError)
├── RunFolderError          the run folder cannot be made or written            (also an OSError)
├── FileFormatError         a file cannot be read: damaged, cut off, something else (also a ValueError)
│   ├── UnsafeFileError     a pickle that wants to run code; nothing of it ran
│   └── NoMemoryEventsError a good trace in which no allocations were recorded
├── UsageError              a call came at the wrong moment                     (also a RuntimeError)
└── MissingDependencyError  an optional package is not installed                (also an ImportError)

Each is raised before the first training step or outside a training loop; inside a loop tbmem logs and
switches the failing part off instead. The command line prints the message and exits with code 2.
"""

from __future__ import annotations


class TbmemError(Exception):
    """Base of every error that tbmem raises on purpose."""


class ConfigError(TbmemError, ValueError):
    """A configuration key is unknown, a value does not fit, or a config file cannot be read."""


class RunFolderError(TbmemError, OSError):
    """The folder for a run's files cannot be created or written."""


class FileFormatError(TbmemError, ValueError):
    """A file is not what its name says, or was written by a newer schema."""


class UnsafeFileError(FileFormatError):
    """A pickle asks for code to be run, as no memory snapshot does; it was refused and nothing ran."""


class NoMemoryEventsError(FileFormatError):
    """A trace holds no allocations, because the profiler was not told to record them."""


class UsageError(TbmemError, RuntimeError):
    """A method was called at a moment at which it means nothing."""


class MissingDependencyError(TbmemError, ImportError):
    """An optional package that this part needs is not installed."""
