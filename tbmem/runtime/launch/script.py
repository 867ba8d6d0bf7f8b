"""Runs a script, module, folder or archive as Python itself would."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import BuiltinImporter, ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

from tbmem.errors import UsageError

_STDIN = "<stdin>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run; ``name`` is the first item of its ``sys.argv``, ``path`` its ``__file__``."""

    name: str
    path: str
    arguments: tuple[str, ...] = ()
    spec: ModuleSpec | None = None
    import_path: str | None = None
    """First item of ``sys.path``; ``None`` leaves it unchanged."""

    @classmethod
    def find(cls, words: Sequence[str]) -> Program:
        """The program of a command line: ``['train.py', '--lr', '3']``, ``['-m', 'package.train', '--lr', '3']``.

        A folder or an archive with ``__main__.py`` in it is a program as well, ``'-'`` a script on standard input.
        Raises UsageError if there is no such script or module.
        """
        if words[:1] == ["-m"]:
            if len(words) < 2:
                raise UsageError("-m needs a module's name: tbmem run -m package.train")
            return replace(cls._module(words[1]), arguments=tuple(words[2:]))
        return replace(cls._script(words[0]), arguments=tuple(words[1:]))

    @classmethod
    def _script(cls, name: str) -> Program:
        if name == "-c":
            raise UsageError("-c: only a script in a file can be run; one on standard input is -")
        if name == "-":
            if sys.stdin is None or sys.stdin.isatty():
                raise UsageError("-: there is no script on standard input")
            return cls(name=name, path=_STDIN, import_path=_unless_safe_path(""))
        if not os.path.exists(name):
            raise UsageError(f"{name}: no such script; a module is run with -m")
        if not os.access(name, os.R_OK):
            raise UsageError(f"{name}: this script cannot be read: permission denied")
        path = os.path.join(os.getcwd(), name)
        if os.path.isdir(path) or zipfile.is_zipfile(path):
            spec = PathFinder.find_spec("__main__", [path])
            if spec is None or spec.origin is None or not hasattr(spec.loader, "get_code"):
                kind = "a folder" if os.path.isdir(path) else "an archive"
                raise UsageError(f"{name}: {kind} without __main__.py; name the script in it")
            return cls(name=name, path=spec.origin, spec=spec, import_path=path)
        folder = os.path.dirname(os.path.realpath(path))
        return cls(name=name, path=path, import_path=_unless_safe_path(folder))

    @classmethod
    def _module(cls, name: str) -> Program:
        import_path = _unless_safe_path(os.getcwd())
        _import_first_from(import_path)  # `tbmem run -m` finds what `python -m` finds
        spec = _find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = _find_spec(f"{name}.__main__")
        loader: Any = None if spec is None else spec.loader
        is_compiled = loader is BuiltinImporter or isinstance(loader, ExtensionFileLoader)
        if spec is None or spec.origin is None or is_compiled or not hasattr(loader, "get_code"):
            raise UsageError(f"{name}: no module of this name that can be run")
        return cls(name=spec.origin, path=spec.origin, spec=spec, import_path=import_path)

    def take_command_line(self) -> None:
        """Make ``sys.argv`` the program's own: from then on it is the process' command line."""
        sys.argv[:] = [self.name, *self.arguments]

    def run(self, on_error: Callable[[BaseException], None]) -> None:
        """Run it; exceptions other than ``SystemExit`` are passed to ``on_error`` and propagate."""
        self.take_command_line()
        module = self._become_main()
        try:
            exec(self._code(), module.__dict__)  # nosec B102  # the user's program
        except SystemExit:
            raise
        except BaseException as error:
            on_error(error)
            _hide_frames_below(error, sys._getframe())
            raise

    def _become_main(self) -> ModuleType:
        module = ModuleType("__main__")
        spec = self.spec
        loader = BuiltinImporter if self.path == _STDIN else SourceFileLoader("__main__", self.path)
        module.__dict__.update(
            __file__=self.path,
            __builtins__=sys.modules["builtins"],
            __spec__=spec,
            __loader__=spec.loader if spec is not None else loader,
            __package__=spec.parent if spec is not None else None,
            __cached__=spec.cached if spec is not None else None,
        )
        if "__annotations__" in vars(sys.modules["__main__"]):  # older Pythons begin with an empty one
            module.__dict__["__annotations__"] = {}
        sys.modules["__main__"] = module
        _import_first_from(self.import_path)
        return module

    def _code(self) -> CodeType:
        if self.spec is not None:
            loader: Any = self.spec.loader
            code: CodeType = loader.get_code(self.spec.name)
            return code
        if self.path == _STDIN:
            return compile(sys.stdin.buffer.read(), _STDIN, "exec", dont_inherit=True)
        with io.open_code(self.path) as file:
            return compile(file.read(), self.path, "exec", dont_inherit=True)


def _unless_safe_path(import_path: str) -> str | None:
    """The entry for ``sys.path``, unless Python was started without (``-P``, ``-I``)."""
    return None if getattr(sys.flags, "safe_path", False) or sys.flags.isolated else import_path


def _import_first_from(import_path: str | None) -> None:
    """Put a folder first on ``sys.path``, in place of what Python has put there for tbmem itself."""
    if import_path is not None and sys.path[:1] != [import_path]:
        taken = 0 if _unless_safe_path(import_path) is None else 1  # items that Python has put there
        sys.path[:taken] = [import_path]


def _find_spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _hide_frames_below(error: BaseException, last: FrameType) -> None:
    """Remove tbmem's frames from the printed traceback; they are added while the exception propagates."""
    shown = error.__traceback__
    while shown is not None and shown.tb_frame is not last:
        shown = shown.tb_next
    tail = shown.tb_next if shown is not None else None
    if tail is not None and tail.tb_frame.f_code.co_filename == __file__:
        tail = None  # a syntax error
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if value is error:
            traceback = tail
            value.__traceback__ = tail
        hook(kind, value, traceback)

    sys.excepthook = show
