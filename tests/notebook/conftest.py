"""A shell that keeps what it is given to display."""

from __future__ import annotations

from typing import Any

import pytest


class Shell:
    """What tbmem uses of IPython's shell in a kernel."""

    kernel = object()

    def __init__(self) -> None:
        self.display_pub = self
        self.shown: list[tuple[str, str, bool]] = []
        """HTML, text, and whether it replaced what was shown before."""
        self.user_ns: dict[str, Any] = {}

    def publish(self, data: dict[str, str], metadata: dict[str, Any], *, transient: Any, update: bool) -> None:
        assert transient["display_id"]
        self.shown.append((data["text/html"], data["text/plain"], update))


@pytest.fixture
def shell() -> Shell:
    return Shell()
