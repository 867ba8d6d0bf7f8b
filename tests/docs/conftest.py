"""What tests of the documentation's site share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.site import built_once


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    return built_once(tmp_path_factory)
