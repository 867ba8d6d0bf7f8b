"""What a job cannot be is said in the words of the command line."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.errors import UsageError
from tbmem.model.job import Job, short_dtype


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"replicate": 0}, "--ddp is 0; it must be 1 or more"),
        ({"tensor": -1}, "--tp is -1; it must be 1 or more"),
        ({"batch": 0}, "--batch is 0; it must be 1 or more"),
        ({"clip": 0.0}, "clip is 0.0; it must be above 0"),
        ({"clip": float("nan")}, "clip is nan; it must be above 0"),
    ],
)
def test_what_cannot_be_is_one_line(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Job(model="gpt2", **asked)


@pytest.mark.parametrize("name", ["bf16", "BF16", "bfloat16", "torch.bfloat16"])
def test_types_have_short_names(name: str) -> None:
    job = Job.of("gpt2", dtype=name, amp=name)

    assert (job.dtype, job.amp) == ("bfloat16", "bfloat16")
    assert short_dtype(name) == "bf16"


def test_a_type_that_there_is_not_keeps_its_name_in_the_error() -> None:
    with pytest.raises(UsageError, match=r"dtype is 'bf17'; there are float32 \(fp32\), bfloat16 \(bf16\), float"):
        Job.of("gpt2", dtype="bf17")
    with pytest.raises(UsageError, match=r"amp is 'float32'; there are bfloat16 \(bf16\), float16"):
        Job.of("gpt2", amp="fp32")


@pytest.mark.parametrize(
    ("options", "message"), [({"seq": "long"}, "--seq is 'long'"), ({"fsdp": 2.5}, "--fsdp is 2.5")]
)
def test_what_is_no_whole_number_is_said_to_be_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"{message}; it must be a whole number"):
        Job.of("gpt2", **options)
