"""Routes of the Memory tab: answers on runs, and the front end's files."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import logging
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tensorboard import errors
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from tbmem.errors import TbmemError
from tbmem.model.progress import CancelledError
from tbmem.offline.queries.answers import Answers
from tbmem.offline.queries.run_reader import MissingError, OutsideError
from tbmem.plugin.dropped import DroppedFiles
from tbmem.present.page import as_json, page_script, page_style
from tbmem.sources.runs.catalog import Catalog, roots_of

_log = logging.getLogger(__name__)
_YEAR = 365 * 24 * 3600
_CHANGING = ("index", "overview", "progress")
"""Answers that change with time and are never cached."""
_ONCE = {"after", "within"}
"""Parameters of a question for what is new, or for what can be read within a time: asked once."""
_CACHED_ANSWERS = 256
"""Limit of compressed answers cached while their files do not change: tens of megabytes."""


class MemoryPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The Memory tab."""

    plugin_name = "tbmem"

    def __init__(self, context: Any) -> None:
        self._catalog = Catalog(roots_of(context.logdir or "", getattr(context.flags, "logdir_spec", "") or ""))
        self._answers = Answers(self._catalog)
        self._dropped = DroppedFiles(self._answers)
        self._cached = functools.lru_cache(_CACHED_ANSWERS)(self._encoded)

    def get_plugin_apps(self) -> dict[str, Any]:
        """WSGI applications by route."""
        return {
            "/data/*": self._serve_answer,
            "/drop": self._take_file,
            "/page.js": self._serve_script,
            "/page.css": self._serve_style,
        }

    def is_active(self) -> bool:
        """Whether there is a run; called on each listing, answered from memory."""
        return self._catalog.has_any()

    def frontend_metadata(self) -> Any:
        """Name and front-end module of the tab."""
        return base_plugin.FrontendMetadata(es_module_path=f"/page.js?v={_script()[0]}", tab_name="Memory")

    @wrappers.Request.application  # type: ignore[arg-type]
    def _serve_answer(self, request: wrappers.Request) -> Any:
        # the part of the path after the route, whatever prefix TensorBoard was started with
        view = request.path.partition(f"/plugin/{self.plugin_name}/data/")[2]
        params = dict(request.args.lists())
        query = json.dumps(params, sort_keys=True)
        with _http_errors():
            if view == "cancel" and request.method == "POST":
                self._answers.cancel(params)
                return http_util.Respond(request, "{}", "application/json")
            if view in _CHANGING or _ONCE & params.keys():
                content = self._encoded(view, query)
            else:
                content = self._cached(view, query, self._answers.version(params))
        return http_util.Respond(request, content, "application/json", content_encoding="gzip")

    @wrappers.Request.application  # type: ignore[arg-type]
    def _take_file(self, request: wrappers.Request) -> Any:
        """Store a file from the disk of who looks at the page, and read it as any other."""
        with _http_errors():
            if request.method != "POST":
                raise MissingError("a file is sent by POST")
            if not _is_from_the_page(request):
                raise OutsideError("a file is taken from this page only, not from another site")
            content = self._dropped.add(request.args.get("name", ""), request.stream, request.content_length)
        return http_util.Respond(request, content, "application/json")

    def _encoded(self, view: str, query: str, version: Hashable = None) -> bytes:
        """One answer as compressed JSON; ``version`` stands for the state of the files in the cache's key."""
        text = as_json(self._answers.answer(view, json.loads(query)))
        return gzip.compress(text.encode(), compresslevel=1, mtime=0)

    @wrappers.Request.application  # type: ignore[arg-type]
    def _serve_script(self, request: wrappers.Request) -> Any:
        version, content = _script()
        # a response to the address of an older version must not be cached under it
        expires = _YEAR if request.args.get("v") == version else 0
        return http_util.Respond(request, content, "text/javascript", content_encoding="gzip", expires=expires)

    @wrappers.Request.application  # type: ignore[arg-type]
    def _serve_style(self, request: wrappers.Request) -> Any:
        return http_util.Respond(request, page_style(), "text/css")


@functools.cache
def _script() -> tuple[str, bytes]:
    """The front end as one module, and a hash of it."""
    content = f"export const {{ render }} = {page_script()};\n".encode()
    return hashlib.sha256(content).hexdigest()[:12], gzip.compress(content, mtime=0)


def _is_from_the_page(request: wrappers.Request) -> bool:
    """Whether a POST is from the tab: the type makes browsers ask before another site may send it."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if request.mimetype != "application/octet-stream":
        return False
    if site is not None:
        return site == "same-origin"
    try:
        return origin is None or urlsplit(origin).netloc == request.host
    except ValueError:  # no URL: not this page's
        return False


@contextmanager
def _http_errors() -> Iterator[None]:
    """Replace errors by those that TensorBoard turns into an HTTP status."""
    try:
        yield
    except MissingError as error:
        raise errors.NotFoundError(str(error)) from error
    except OutsideError as error:
        raise errors.PermissionDeniedError(str(error)) from error
    except TbmemError as error:
        raise errors.InvalidArgumentError(str(error)) from error
    except CancelledError as error:
        raise errors.InvalidArgumentError(f"{error}: press ↻ to read it again") from error
    except Exception as error:
        # the page continues with the other views; the error is in TensorBoard's log
        _log.exception("the Memory tab could not answer")
        raise errors.InvalidArgumentError(f"cannot be shown: {type(error).__name__}: {error}") from error
