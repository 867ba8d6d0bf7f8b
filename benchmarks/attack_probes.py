"""Probes of an attack: one command line in this process, or one request to the Memory tab, and what became of it."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CLEAR, PLAUSIBLE, TRACEBACK, HANG, CRASH = "clear line", "plausible", "traceback", "hang", "crash"


@dataclass(frozen=True)
class Probe:
    """One question to a reader: a command line, or a request to the tab."""

    words: tuple[str, ...] = ()
    request: tuple[str, str] | None = None
    """Method and path with query."""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    page: Path | None = None
    """A page that the command writes, in which no name may be markup."""

    def __str__(self) -> str:
        return f"tbmem {' '.join(self.words)}" if self.words else " ".join(self.request or ())


def command_outcome(probe: Probe) -> tuple[str, str]:
    """Run a command line in this process, and judge what it said."""
    from tbmem.cli.entry import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["tbmem", *probe.words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException as error:
        return TRACEBACK, brief(error)
    return judged(code, out.getvalue(), err.getvalue(), probe)


def judged(code: int, out: str, err: str, probe: Probe) -> tuple[str, str]:
    """The outcome of a command that ended in order."""
    lines = [line for line in err.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in out + err:
        return TRACEBACK, lines[-1] if lines else "a traceback"
    if code == 2:
        if "MemoryError" in err or "Unable to allocate" in err:
            return CRASH, f"memory: {lines[-1]}"
        is_clear = bool(lines) and lines[-1].startswith("tbmem")
        return (CLEAR, lines[-1]) if is_clear else (TRACEBACK, f"exit code 2 without a line: {err[-200:]!r}")
    if code not in (0, 1):
        return TRACEBACK, f"exit code {code}: {err[-200:]!r}"
    if "--json" in probe.words and not _is_json(out):
        return TRACEBACK, f"no JSON: {out[:80]!r}"
    if probe.page is not None and probe.page.exists() and "<img src=x" in probe.page.read_text("utf-8", "replace"):
        return TRACEBACK, "a name is markup in the page"
    return PLAUSIBLE, ""


def _is_json(text: str) -> bool:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True


def brief(error: BaseException) -> str:
    """Type, message and the innermost line of tbmem in an error."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "/tbmem/" in file:
            place = f" at {file.rpartition('/tbmem/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {str(error)[:120]}{place}"


class TabErrors(logging.Handler):
    """What the plugin logs of errors that it did not expect."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the error."""
        if record.exc_info and record.exc_info[1] is not None:
            self.last = brief(record.exc_info[1])


class Judge:
    """Probes readers, and judges their answers."""

    def __init__(self) -> None:
        self._errors = TabErrors()
        for name in ("tbmem.plugin.plugin", "tbmem.offline.queries.run_reader"):
            logger = logging.getLogger(name)
            logger.addHandler(self._errors)
            logger.propagate = False

    def outcome(self, probe: Probe, logdir: Path) -> tuple[str, str]:
        """Probe a reader, and judge its answer."""
        if probe.words:
            found = command_outcome(probe)
        else:
            try:
                found = self._tab_outcome(probe, logdir)
            except BaseException as error:
                found = TRACEBACK, brief(error)
        if found[0] == TRACEBACK and found[1].startswith(("MemoryError", "_ArrayMemoryError")):
            return CRASH, f"memory: {found[1]}"
        return found

    def _tab_outcome(self, probe: Probe, logdir: Path) -> tuple[str, str]:
        assert probe.request is not None
        self._errors.last = ""
        method, path = probe.request
        answer = self._client(str(logdir)).open(
            path, method=method, headers=list(probe.headers), data=probe.body or None
        )
        text = answer.get_data(as_text=False)
        if self._errors.last:
            return TRACEBACK, self._errors.last
        if answer.status_code >= 500 or b"Traceback (most recent" in text:
            return TRACEBACK, f"status {answer.status_code}: {text[:100]!r}"
        if b"root:x:0:" in text or b"PRIVATE-CONTENT" in text:
            return CRASH, "a file outside of the log folder was served"
        if answer.status_code >= 400:
            return (CRASH, "memory") if b"MemoryError" in text else (CLEAR, text[:100].decode("utf-8", "replace"))
        if method == "HEAD":
            return PLAUSIBLE, ""  # an answer without a body
        if answer.mimetype == "application/json" and answer.content_encoding != "gzip" and not _is_json(text.decode()):
            return TRACEBACK, f"no JSON: {text[:80]!r}"
        return PLAUSIBLE, ""

    @functools.lru_cache(maxsize=2)  # noqa: B019  (lives as long as the process)
    def _client(self, logdir: str) -> Any:
        from tensorboard.backend import application
        from tensorboard.plugins.base_plugin import TBContext
        from werkzeug.test import Client

        from tbmem.plugin.loader import MemoryPluginLoader

        flags = SimpleNamespace(logdir_spec="", path_prefix="")
        plugin = MemoryPluginLoader().load(TBContext(logdir=logdir, flags=flags))
        return Client(application.TensorBoardWSGI([plugin]))
