"""Shows the Memory tab's page of a run in an output cell."""

from __future__ import annotations

import os
from html import escape
from typing import Any

from tbmem.errors import MissingDependencyError, UsageError
from tbmem.notebook.output import Output
from tbmem.offline.reports.pages import logdir_html

THEMES = ("auto", "light", "dark")
_SANDBOX = "allow-scripts allow-downloads"
"""The page's scripts run, and reach nothing of the notebook's."""


def show(run: Any, *, height: int = 720, theme: str = "auto") -> None:
    """Show the Memory tab's page of a run in an output of the running cell.

    The page is a part of the output, so it is shown offline, in Jupyter, in VS Code and in exported HTML, and is saved
    with the notebook: about 1 MB for a run with one window.

    Args:
        run: A run folder, a log folder, a snapshot or trace, or a callback or summary of a run.
        height: Height of the output in pixels.
        theme: ``'auto'`` (the notebook's, or else the system's), ``'light'`` or ``'dark'``.

    Raises:
        MissingDependencyError: IPython is not installed.
        UsageError: No notebook is running, or an argument does not fit.
        FileFormatError: There is no such run or recording, or it is damaged.
    """
    if theme not in THEMES:
        raise UsageError(f"tbmem.show: theme={theme!r}: write one of {', '.join(THEMES)}")
    shell, path = running_shell(), path_of(run)
    text = f"Memory tab of {path}: a notebook shows it"
    Output(shell).show(frame(logdir_html(path), str(path), height, theme), text)


def frame(page: str, title: str, height: int, theme: str) -> str:
    """A page in a frame of its own, whose colours follow the theme of what is around it."""
    scheme = "" if theme == "auto" else f"color-scheme:{theme};"
    return (
        f'<iframe title="{escape(f"Memory tab of {title}")}" sandbox="{_SANDBOX}" loading="lazy"'
        f' style="width:100%;height:{int(height)}px;border:1px solid rgba(128,128,128,.4);{scheme}"'
        f' srcdoc="{escape(page)}"></iframe>'
    )


def path_of(run: Any) -> str:
    """Path of a run that is given by its path, its summary, its callback or a framework's callback."""
    for owner in (run, getattr(run, "session", None), getattr(run, "summary", None)):
        folder = getattr(owner, "folder", None) or getattr(getattr(owner, "memory", None), "folder", None)
        if isinstance(folder, (str, os.PathLike)):
            return os.fspath(folder)
    if isinstance(run, (str, os.PathLike)):
        return os.fspath(run)
    raise UsageError(
        f"tbmem.show: a path, a summary or a callback that has started is needed, not {type(run).__name__}"
    )


def running_shell() -> Any:
    """The running IPython.

    Raises:
        MissingDependencyError: IPython is not installed.
        UsageError: None is running.
    """
    try:
        from IPython import get_ipython
    except ImportError as error:
        raise MissingDependencyError(
            "tbmem.show needs IPython (tbmem's extra notebook): pip install ipython"
        ) from error
    shell = get_ipython()
    if shell is None:
        raise UsageError("tbmem.show: no notebook is running here; tbmem report RUN --html FILE writes the same page")
    return shell
