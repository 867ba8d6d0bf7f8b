"""GPUs are found by name, or by the beginning of a name."""

from __future__ import annotations

import pytest

from tbmem.errors import UsageError
from tbmem.model.gpus import gpu_named


def test_gpus_by_name() -> None:
    assert gpu_named("H100").name == "h100-80gb"
    with pytest.raises(UsageError, match="say which of a100-80gb, a100-40gb"):
        gpu_named("a100")
    with pytest.raises(UsageError, match="there are b200"):
        gpu_named("abacus")
