"""Routes of the Memory tab: answers on runs, and the front end's files."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import logging
from collections.abc import Callable, Hashable
from typing import Any

from tensorboard import errors
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from tbmem.errors import TbmemError
from tbmem.offline.queries.answers import Answers
from tbmem.offline.queries.run_reader import MissingError, OutsideError
from tbmem.present.page import as_json, page_script, page_style
from tbmem.sources.runs.catalog import Catalog, roots_of

_log = logging.getLogger(__name__)
_YEAR = 365 * 24 * 3600
_CHANGING = ("index", "overview")
"""Views that speak of the time that has passed: never kept."""
_KEPT_ANSWERS = 256
"""Compressed answers that are given again at once while their files do not change: tens of megabytes."""


class MemoryPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The Memory tab."""

    plugin_name = "tbmem"

    def __init__(self, context: Any) -> None:
        flags = context.flags
        roots = roots_of(context.logdir or "", getattr(flags, "logdir_spec", "") or "")
        self._catalog = Catalog(roots)
        self._answers = Answers(self._catalog)
        self._kept = functools.lru_cache(_KEPT_ANSWERS)(self._encoded)

    def get_plugin_apps(self) -> dict[str, Any]:
        """WSGI applications by route."""
        return {
            "/data/*": self._serve_answer,
            "/page.js": self._serve_script,
            "/page.css": self._serve_style,
        }

    def is_active(self) -> bool:
        """Whether there is a run; asked on each listing, answered from memory."""
        return self._catalog.has_any()

    def frontend_metadata(self) -> Any:
        """Name of the tab, and the module that draws it."""
        return base_plugin.FrontendMetadata(es_module_path=f"/page.js?v={_script()[0]}", tab_name="Memory")

    @wrappers.Request.application  # type: ignore[arg-type]
    def _serve_answer(self, request: wrappers.Request) -> Any:
        view = _below(request, "/data/")
        content = _refusing(functools.partial(self._answer, view, dict(request.args.lists())))
        return http_util.Respond(request, content, "application/json", content_encoding="gzip")

    def _answer(self, view: str, params: dict[str, list[str]]) -> bytes:
        """One answer as JSON, compressed once."""
        asked = json.dumps(params, sort_keys=True)
        if view in _CHANGING:
            return self._encoded(view, asked)
        return self._kept(view, asked, self._answers.version(params))

    def _encoded(self, view: str, asked: str, version: Hashable = None) -> bytes:
        """The same; ``version`` is what the answer depends on beside the question."""
        text = as_json(self._answers.answer(view, json.loads(asked)))
        return gzip.compress(text.encode(), compresslevel=1, mtime=0)

    @wrappers.Request.application  # type: ignore[arg-type]
    def _serve_script(self, request: wrappers.Request) -> Any:
        version, content = _script()
        # asked for by an older address it is not what that address will be kept for
        expires = _YEAR if request.args.get("v") == version else 0
        return http_util.Respond(request, content, "text/javascript", content_encoding="gzip", expires=expires)

    @wrappers.Request.application  # type: ignore[arg-type]
    def _serve_style(self, request: wrappers.Request) -> Any:
        return http_util.Respond(request, page_style(), "text/css")


@functools.cache
def _script() -> tuple[str, bytes]:
    """The front end as one module, and a name that changes with it."""
    content = f"export const {{ render }} = {page_script()};\n".encode()
    return hashlib.sha256(content).hexdigest()[:12], gzip.compress(content, mtime=0)


def _below(request: wrappers.Request, route: str) -> str:
    """What follows a route in the path, whatever prefix TensorBoard was started with."""
    return request.path.partition(f"/plugin/{MemoryPlugin.plugin_name}{route}")[2]


def _refusing(make: Callable[[], bytes]) -> bytes:
    """An answer, or the refusal that TensorBoard turns into a status.

    Raises:
        NotFoundError: There is no such view, run or file: 404.
        PermissionDeniedError: The file lies outside of the log folder: 403.
        InvalidArgumentError: A parameter is wrong, or the file cannot be read or shown: 400.
    """
    try:
        return make()
    except MissingError as error:
        raise errors.NotFoundError(str(error)) from error
    except OutsideError as error:
        raise errors.PermissionDeniedError(str(error)) from error
    except TbmemError as error:
        raise errors.InvalidArgumentError(str(error)) from error
    except Exception as error:
        # the page goes on with the other views; what it was stands in TensorBoard's log
        _log.exception("the Memory tab could not answer")
        raise errors.InvalidArgumentError(f"cannot be shown: {type(error).__name__}: {error}") from error
