"""GPUs are found by name, by torch's name of them, or by an unambiguous part of either."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.errors import UsageError
from tbmem.model.gpus import GPUS, gpu_named, gpus_named


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("H100", "h100-80gb"),
        ("a100_40gb", "a100-40gb"),
        ("A100 80GB", "a100-80gb"),
        ("4090", "rtx4090-24gb"),
        ("RTX 3090", "rtx3090-24gb"),
        ("GeForce RTX 5090", "rtx5090-32gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("l4", "l4-24gb"),
        ("40gb", "a100-40gb"),
        ("RTX A6000", "a6000-48gb"),
    ],
)
def test_a_part_of_a_name_is_enough(query: str, name: str) -> None:
    assert gpu_named(query).name == name


def test_a_size_is_that_of_a_gpu_which_is_not_listed() -> None:
    # when
    gpu = gpu_named("12GiB")
    # then it computes like the smallest listed one that has as much
    assert (gpu.name, gpu.total, gpu.capability) == ("12GiB", 12 << 30, GPUS["t4-16gb"].capability)
    assert gpu_named("500 GiB").capability == GPUS["b200-180gb"].capability
    assert gpu_named(gpu.name) == gpu


@pytest.mark.parametrize(("size", "name"), [("16GB", "t4-16gb"), ("16 gb", "t4-16gb"), ("180GB", "b200-180gb")])
def test_of_several_that_are_sold_with_one_size_it_is_that_with_the_least_memory(size: str, name: str) -> None:
    assert gpu_named(size) == GPUS[name]


def test_torchs_name_of_each_gpu_names_it() -> None:
    assert all(gpu_named(gpu.device_name) is gpu for gpu in GPUS.values())


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("a100", "say which of a100-80gb, a100-40gb, or its memory, as 24GiB"),
        ("v100", "say which of v100-32gb, v100-16gb"),
        ("abacus", "there are b200"),
        ("rtx4099", "did you mean rtx4090[?] · another one is given by its memory, as in --gpu 12GiB"),
        ("--", "there are b200"),
        ("0GiB", "a GPU has more memory than that"),
    ],
)
def test_several_or_none_is_an_error_with_the_names(query: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        gpu_named(query)


@pytest.mark.parametrize("wrong", [40, None, [40], ["t4", None]])
def test_what_is_no_name_is_no_gpu(wrong: Any) -> None:
    with pytest.raises(UsageError, match="give a name, as 'a100-40gb'"):
        gpus_named(wrong)
