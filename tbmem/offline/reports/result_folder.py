"""A folder for results with a name of its own, there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tbmem.model.files import PARTIAL_SUFFIX

LATEST = "latest"
"""Link to the newest folder, beside it."""
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST = 120


class ResultFolder:
    """A folder that is being filled.

    ``path`` is where to write; ``final`` is where it will be, known once the block has ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.final = path


@contextmanager
def result_folder(out: str | os.PathLike[str], name: str, moment: float) -> Iterator[ResultFolder]:
    """Fill a folder under another name first, so that nobody ever sees half of it.

    Args:
        out: In which folder; made with its parents if missing.
        name: What the results are of.
        moment: Unix time; the folder is called ``YYYYMMDD_HHMMSS_<name>``.

    Yields:
        The folder; renamed at the end, and ``latest`` points to it. After an error nothing is left.

    Raises:
        OSError: It cannot be written.
    """
    place = Path(out).expanduser()
    made = _make(place)
    title = f"{time.strftime('%Y%m%d_%H%M%S', time.localtime(moment))}_{clean_name(name)}"
    folder = ResultFolder(place / f".{title}.{os.getpid()}{PARTIAL_SUFFIX}")
    try:
        folder.path.mkdir()
        yield folder
        folder.final = _rename(folder.path, place, title)
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            for each in made:
                each.rmdir()
        raise
    _point_to(folder.final)


def clean_name(name: str) -> str:
    """A name that a folder can have everywhere."""
    return _UNFIT.sub("_", name).strip("._-")[:_LONGEST] or "recording"


def _make(place: Path) -> list[Path]:
    """Make a folder with its parents; those that were missing, the innermost first."""
    missing = [each for each in (place, *place.parents) if not each.exists()]
    place.mkdir(parents=True, exist_ok=True)
    return missing


def _rename(partial: Path, place: Path, title: str) -> Path:
    """Two of one second get a number."""
    for number in count(1):
        final = place / (title if number == 1 else f"{title}-{number}")
        if final.exists():
            continue
        partial.rename(final)
        return final
    raise AssertionError("numbers do not end")


def _point_to(folder: Path) -> None:
    """Let ``latest`` be a link to the folder, where links can be made; what is no link is left alone."""
    link = folder.with_name(LATEST)
    fresh = folder.with_name(f".{LATEST}.{os.getpid()}{PARTIAL_SUFFIX}")
    if link.exists() and not link.is_symlink():
        return
    with contextlib.suppress(OSError, NotImplementedError):
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(folder.name, target_is_directory=True)
        fresh.replace(link)
