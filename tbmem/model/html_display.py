"""HtmlDisplay: how a notebook finds the HTML of a record."""

from __future__ import annotations

from importlib import import_module

_RENDERER = "tbmem.present.html.records"


class HtmlDisplay:
    """A record that a notebook displays as HTML, with the words and figures of the console."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # The renderer is on a floor above. It is imported by name, and only when a notebook displays the record:
        # the records themselves know no screen.
        html: str = import_module(_RENDERER).record_html(self)
        return html
