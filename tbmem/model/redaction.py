"""Redaction: leaves host name, user name, folders and argument values out of what a run writes (``output.redact``)."""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import os
import re
import socket
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from tbmem.model.category import Category
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding, FindingKind, Severity

T = TypeVar("T")
HOST, USER, ARGUMENT = "<host>", "<user>", "<argument>"
_GENERIC = {
    *(
        "",
        "admin",
        "app",
        "ci",
        "data",
        "default",
        "dev",
        "docker",
        "ec2-user",
        "gpu",
        "jenkins",
        "jovyan",
        "localhost",
    ),
    *("memory", "model", "nobody", "python", "root", "runner", "test", "torch", "train", "ubuntu", "user", "worker"),
}
"""Names of no one, and words: they are replaced in paths only."""
_VOCABULARY = {word.value for kind in (FindingKind, Severity, Channel) for word in kind} | {
    *(category.name.lower() for category in Category),
    *("caught", "finding", "framework", "header", "samples", "signal", "window"),
    *("default", "profile", "record", "tensor"),
}
"""Words of tbmem's own records, which stay even if an argument of the program is the same."""
_SHORTEST = 6
"""Characters of an argument's value from which it is left out: shorter ones are sizes, devices and the like."""
_BLOCK = 1 << 18
"""Bytes of a trace that are redacted at a time."""
_PART = r"[^\s\"'/\\:;,()<>|\[\]{}*?]"
_ABSOLUTE = re.compile(rf"(?<![\w.~/>\\…-])/(?:{_PART}+/)+{_PART}*")
"""A path from the root with a folder at least; not the rest of a relative one, nor of an address (``https://``)."""
_LIBRARY = re.compile(r".*?/((?:(?:site|dist)-packages|lib/python\d[\d.]*|torch|tbmem)/.*|conda\d?/bin/[^/]*)")
"""What is kept of the path of an installed file: where it is says whose code it is (``code_owner``)."""
_COMPILED = re.compile(r".*?/torchinductor_[^/]*/(.*)")
"""A file of torch's compiler; its folder has the user's name."""
_SYSTEM = ("/bin/", "/dev/", "/lib/", "/proc/", "/sys/", "/usr/")
"""Folders that are the same on all machines."""
_KEY = re.compile(r"""\[(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")\]""")
"""The key of a dictionary in the name of a holder, or in a line of source."""
_INPUTS = re.compile(rb'"Concrete Inputs":\s*\[(?:\s*"(?:[^"\\]|\\.)*"\s*,?)*\s*\]')
"""Values of an operator's arguments in a trace of torch.profiler."""


class Redaction:
    """What is replaced; without arguments nothing is.

    Paths in ``folders`` become what they stand for (``~``, ``.``), other absolute ones keep their last two parts, and
    those of installed packages everything from ``site-packages/`` on. Names of ``words`` are replaced where they stand
    alone. A text may be redacted twice.

    Args:
        folders: Replacement of each folder, such as ``{"/home/ada": "~"}``.
        words: Replacement of each name or value, such as ``{"node7": "<host>"}``.
        users: Names that are replaced as a part of a path only.
    """

    def __init__(
        self,
        folders: Mapping[str, str] | None = None,
        words: Mapping[str, str] | None = None,
        users: Iterable[str] = (),
    ) -> None:
        self._folders = _Replacements(folders or {}, r"(?<![\w.~])", r"(?![\w-]|\.\w)")
        # not the key of a JSON object, nor a part of a longer name
        self._words = _Replacements(words or {}, r"(?<![\w-])", r"(?![\w(-]|\.\w|\"\s*:)")
        self._users = _Replacements(dict.fromkeys(users, USER), r"(?<=/)", r"(?=/)")
        self.is_on = any((self._folders, self._words, self._users))
        """Whether anything is replaced."""

    @classmethod
    def of_this_process(cls, keep: Iterable[str | None] = ()) -> Redaction:
        """What is known of the machine and the program's arguments; ``keep``: values that stay."""
        keep = {*keep, *_VOCABULARY}
        arguments = {value: ARGUMENT for value in _argument_values(sys.argv[1:]) if value not in keep}
        return cls._of_machine(arguments)

    @classmethod
    def of_this_machine(cls) -> Redaction:
        """What is known of the machine, for texts about a run that was redacted."""
        return cls._of_machine({})

    @classmethod
    def _of_machine(cls, words: Mapping[str, str]) -> Redaction:
        folders = dict.fromkeys(_spellings(_homes()), "~") | dict.fromkeys(_spellings(_working_folders()), ".")
        users, hosts = set(_users()), set(_hosts())
        owners = {*users, *(os.path.basename(home) for home in _homes() if os.path.isabs(home))}
        names = dict.fromkeys(users - _GENERIC, USER) | dict.fromkeys(hosts - _GENERIC, HOST)
        return cls(folders, {**words, **names}, owners - {""})

    def host(self, name: str) -> str:
        """A host name as a part of a file's name."""
        return "host" if self.is_on else name

    def text(self, text: str) -> str:
        """A message, a line of source, a name or a path."""
        return _KEY.sub("[…]", self._names(text)) if self.is_on else text

    def value(self, value: Any) -> Any:
        """All texts in plain JSON values; the keys of mappings stay."""
        if not self.is_on:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(item) for key, item in value.items()}
        return type(value)(map(self.value, value)) if type(value) in (list, tuple) else value

    def record(self, record: T) -> T:
        """A record of the live log; only mappings and findings hold texts of the machine."""
        if not self.is_on:
            return record
        changed: Any = self.finding(record) if isinstance(record, Finding) else record
        changed = self.value(changed) if isinstance(changed, Mapping) else changed
        return cast(T, changed)

    def finding(self, finding: Finding) -> Finding:
        """A finding whose message, evidence and advice are redacted."""
        if not self.is_on:
            return finding
        message, advice = self.text(finding.message), self.text(finding.advice)
        return replace(finding, message=message, advice=advice, evidence=self.value(finding.evidence))

    def page(self, text: str) -> str:
        """A report as text, Markdown or JSON: names and paths; quoted keys may be its own."""
        return self._names(text) if self.is_on else text

    def trace(self, lines: bytes) -> bytes:
        """Whole lines of a trace's JSON text: names and paths, and the values of operators' arguments."""
        if not self.is_on:
            return lines
        text = _INPUTS.sub(b'"Concrete Inputs": []', lines).decode("utf-8", "surrogateescape")
        return self._names(text).encode("utf-8", "surrogateescape")

    def trace_reader(self, file: BinaryIO) -> BinaryIO:
        """The rest of an uncompressed trace, for who reads it from its beginning to its end."""
        return cast(BinaryIO, _RedactedTrace(self, file)) if self.is_on else file

    def snapshot(self, snapshot: Mapping[str, Any]) -> None:
        """The files of all stacks of a snapshot, in place; equal stacks are one list in it."""
        if not self.is_on:
            return
        stacks = {id(frames): frames for frames in _stacks(snapshot)}
        files: dict[str, str] = {}
        for frame in chain.from_iterable(stacks.values()):
            file = frame.get("filename")
            if isinstance(file, str):
                if file not in files:
                    files[file] = self.text(file)
                frame["filename"] = files[file]

    def _names(self, text: str) -> str:
        text = _ABSOLUTE.sub(lambda found: _shortened(found.group()), self._folders.apply(text))
        return self._words.apply(self._users.apply(text))


class _RedactedTrace:
    """Reads a trace and redacts it."""

    def __init__(self, redaction: Redaction, file: BinaryIO) -> None:
        self._redaction, self._file = redaction, file

    def read(self, count: int = -1) -> bytes:
        """The next lines, some more or fewer bytes than ``count``."""
        return self._redaction.trace(b"".join(self._file.readlines(_BLOCK if count > 0 else -1)))


class _Replacements:
    """Texts that are replaced where they stand between two patterns, the longest first."""

    def __init__(self, texts: Mapping[str, str], before: str, after: str) -> None:
        # in JSON some characters are escaped
        self._texts = {form: new for text, new in texts.items() for form in (text, json.dumps(text)[1:-1])}
        longest_first = sorted(map(re.escape, self._texts), key=len, reverse=True)
        self._pattern = re.compile(f"{before}(?:{'|'.join(longest_first)}){after}")

    def __bool__(self) -> bool:
        return bool(self._texts)

    def apply(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._texts[found.group()], text) if self._texts else text


class RedactionFilter(logging.Filter):
    """Redacts the messages of a logger, and the tracebacks of errors."""

    def __init__(self, redaction: Redaction) -> None:
        super().__init__()
        self._redaction = redaction

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record; all are shown."""
        record.msg, record.args = self._redaction.text(record.getMessage()), ()
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = self._redaction.text("".join(traceback.format_exception(*record.exc_info)).rstrip())
            record.exc_info = None
        return True


NOTHING_REDACTED = Redaction()


@contextlib.contextmanager
def redacted_lines(logger: logging.Logger, redaction: Redaction) -> Iterator[None]:
    """Redact the lines of a logger while entered."""
    lines = RedactionFilter(redaction)
    if redaction.is_on:
        logger.addFilter(lines)
    try:
        yield
    finally:
        logger.removeFilter(lines)


def _shortened(path: str) -> str:
    if path.startswith(_SYSTEM):
        return path
    if compiled := _COMPILED.match(path):
        return f"…/torchinductor_/{compiled.group(1)}"
    library = _LIBRARY.match(path)
    return "…/" + (library.group(1) if library else "/".join(path.split("/")[-2:]))


def _stacks(snapshot: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
    for trace in snapshot.get("device_traces", ()):
        for event in trace:
            yield event.get("frames", [])
    for segment in snapshot.get("segments", ()):
        yield segment.get("frames", [])
        for block in segment.get("blocks", ()):
            yield block.get("frames", [])
            for entry in block.get("history", ()):
                yield entry.get("frames", [])


def _spellings(folders: Iterable[str]) -> Iterator[str]:
    """Folders as they are and with links resolved; the root and what is not absolute are left out."""
    for folder in folders:
        for spelling in (folder, os.path.realpath(folder)) if os.path.isabs(folder) else ():
            if len(Path(spelling).parts) > 1:
                yield spelling.rstrip("/")


def _homes() -> Iterator[str]:
    yield os.path.expanduser("~")
    try:
        import pwd

        yield pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return  # no such database, or a container's user without an entry


def _working_folders() -> Iterator[str]:
    yield os.environ.get("PWD", "")
    try:
        yield os.getcwd()
    except FileNotFoundError:
        return  # it was deleted


def _users() -> Iterator[str]:
    with contextlib.suppress(OSError, KeyError, ImportError):  # a container's user may have no name
        yield getpass.getuser()
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        yield pwd.getpwuid(os.getuid()).pw_name


def _hosts() -> Iterator[str]:
    for name in (socket.gethostname(), os.environ.get("HOSTNAME", ""), os.environ.get("MASTER_ADDR", "")):
        yield name
        if not name.replace(".", "").isdigit():
            yield name.partition(".")[0]


def _argument_values(arguments: Iterable[str]) -> Iterator[str]:
    """Values of a command line, ``value`` and the last part of ``--key=value``: words, neither numbers nor options."""
    for argument in arguments:
        for value in {argument, argument.partition("=")[2]}:
            if len(value) >= _SHORTEST and not value.startswith("-") and any(map(str.isalpha, value)):
                yield value
