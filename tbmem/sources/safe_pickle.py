"""A pickle of unknown origin goes in, plain dicts, lists, words and numbers come out; anything else is refused."""

from __future__ import annotations

import os
import pickle
import zlib
from typing import Any, NoReturn

from tbmem.errors import FileFormatError, UnsafeFileError
from tbmem.sources.collector import collector_paused
from tbmem.sources.opened import opened

_CHUNK = 1 << 20


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every global, and so every call: a pickle can do nothing without one."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnsafeFileError(f"the pickle asks for {module}.{name}, which no memory snapshot needs: nothing was run")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnsafeFileError("the pickle asks for an object from outside, which no memory snapshot needs")


def load_plain_pickle(path: str | os.PathLike[str]) -> Any:
    """Read a pickle that holds plain data.

    Raises:
        UnsafeFileError: The pickle asks for a class or function, whatever it is; nothing was run.
        FileFormatError: The file is empty, cut off, damaged, or not a pickle.
        OSError: The file cannot be read.
    """
    place = os.fspath(path)
    with opened(place) as file, collector_paused():
        try:
            loaded = _PlainUnpickler(file).load()
            while file.read(_CHUNK):
                pass  # gzip tells only at its end that it was cut off
            return loaded
        except UnsafeFileError as error:
            raise UnsafeFileError(f"{place}: {error}") from None
        except (FileFormatError, OSError, zlib.error):
            raise
        except EOFError as error:
            raise FileFormatError(f"{place}: the file is cut off: copy or write it again") from error
        except Exception as error:
            # a damaged pickle raises whatever its bytes happen to ask for
            why = str(error) or type(error).__name__
            raise FileFormatError(f"{place}: not a pickle, or a damaged or cut off one ({why})") from error
