"""A script or a module and its arguments go in; it runs as `__main__`, as if Python had been given it."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

from tbmem.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What shall run."""

    name: str
    """As it was typed: a path, or a module's name."""
    path: str
    """Its file, absolute."""
    arguments: tuple[str, ...] = ()
    spec: ModuleSpec | None = None
    """Of a module; ``None`` for a script, as in Python itself."""
    folder: str = ""
    """What a script finds its neighbours in; a module has the working directory."""

    @classmethod
    def find(cls, words: Sequence[str]) -> Program:
        """The program that a command line means.

        Args:
            words: ``['train.py', '--lr', '3']`` or ``['-m', 'package.train', '--lr', '3']``.

        Raises:
            UsageError: There is no such script or module.
        """
        if words[:1] == ["-m"]:
            if len(words) < 2:
                raise UsageError("-m needs a module's name: tbmem run -m package.train")
            return cls._module(words[1], words[2:])
        return cls._script(words[0], words[1:])

    @classmethod
    def _script(cls, name: str, arguments: Sequence[str]) -> Program:
        path = Path(name)
        if path.is_dir():
            path /= "__main__.py"
            if not path.is_file():
                raise UsageError(f"{name}: a folder without __main__.py; name the script in it")
        if name in ("-", "-c"):
            raise UsageError(f"{name}: only a script in a file can be run; one on standard input is /dev/stdin")
        if not path.exists():
            raise UsageError(f"{name}: no such script; a module is run with -m")
        if not os.access(path, os.R_OK):
            raise UsageError(f"{name}: this script cannot be read: permission denied")
        if zipfile.is_zipfile(path):
            raise UsageError(f"{name}: an archive; unpack it, and name the script in it")
        return cls(
            name=name,
            path=os.path.abspath(path),
            arguments=tuple(arguments),
            folder=os.path.dirname(os.path.realpath(path)),
        )

    @classmethod
    def _module(cls, name: str, arguments: Sequence[str]) -> Program:
        if "" not in sys.path and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # `tbmem run -m` finds what `python -m` finds
        spec = _find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = _find_spec(f"{name}.__main__")
        if spec is None or spec.loader is None or spec.origin is None or not hasattr(spec.loader, "get_code"):
            raise UsageError(f"{name}: no module of this name that can be run")
        return cls(name=name, path=spec.origin, arguments=tuple(arguments), spec=spec)

    def run(self, on_error: Callable[[BaseException], None]) -> None:
        """Run it. Whatever it raises goes on to the interpreter, with a traceback that begins in its own code.

        Args:
            on_error: Told of an exception before it goes on; not of ``SystemExit``, which is an end in order.
        """
        module = self._become_main()
        try:
            exec(self._code(), module.__dict__)
        except SystemExit:
            raise
        except BaseException as error:
            on_error(error)
            _hide_frames_below(error, sys._getframe())
            raise

    def _become_main(self) -> ModuleType:
        """What Python does before a program's first line."""
        module = ModuleType("__main__")
        spec = self.spec
        loader = spec.loader if spec is not None else SourceFileLoader("__main__", self.path)
        module.__dict__.update(
            __file__=self.path,
            __builtins__=sys.modules["builtins"],
            __spec__=spec,
            __loader__=loader,
            __package__=spec.parent if spec is not None else None,
            __cached__=spec.cached if spec is not None else None,
        )
        sys.modules["__main__"] = module
        sys.argv[:] = [self.path if spec is not None else self.name, *self.arguments]
        if not getattr(sys.flags, "safe_path", False) and spec is None:
            sys.path[0] = self.folder
        return module

    def _code(self) -> CodeType:
        if self.spec is not None:
            loader: Any = self.spec.loader
            code: CodeType = loader.get_code(self.spec.name)
            return code
        with io.open_code(self.path) as file:
            return compile(file.read(), self.path, "exec", dont_inherit=True)


def _find_spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _hide_frames_below(error: BaseException, last: FrameType) -> None:
    """Leave out of the printed traceback what lies between the interpreter and the program.

    The exception passes our own frames on its way out and each is written into its traceback, so that they can be
    taken away only at the very end: when the interpreter hands it to ``sys.excepthook``, whosever that is by then.
    """
    shown = error.__traceback__
    while shown is not None and shown.tb_frame is not last:
        shown = shown.tb_next
    tail = shown.tb_next if shown is not None else None
    if tail is not None and tail.tb_frame.f_code.co_filename == __file__:
        tail = None  # it could not even be compiled
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if value is error:
            traceback = tail
            value.__traceback__ = tail
        hook(kind, value, traceback)

    sys.excepthook = show
