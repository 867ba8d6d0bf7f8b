"""Outputs of a notebook's cell, shown through IPython's display publisher."""

from __future__ import annotations

import uuid
from typing import Any


class Output:
    """One output of the running cell; each ``show`` replaces what it showed before.

    Args:
        shell: The running IPython.
    """

    def __init__(self, shell: Any) -> None:
        self._publish = shell.display_pub.publish
        self._id = uuid.uuid4().hex
        self._is_there = False

    def show(self, html: str, text: str) -> None:
        """Show HTML, and text where a front end shows no HTML."""
        bundle = {"text/html": html, "text/plain": text}
        self._publish(bundle, {}, transient={"display_id": self._id}, update=self._is_there)
        self._is_there = True


def draws_html(shell: Any) -> bool:
    """Whether the front end is a notebook: a kernel's, not a terminal's."""
    return getattr(shell, "kernel", None) is not None
