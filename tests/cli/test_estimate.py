"""The command line: a table or JSON, one line for what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.conftest import PROJECT


def tbmem(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tbmem", "estimate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=PROJECT)


FACTORY = ("--model", "tests.sources.fake.factories:layers")


def test_json() -> None:
    done = tbmem(*FACTORY, "--batch", "64", "--gpu", "t4", "--json")

    view = json.loads(done.stdout)

    assert done.returncode == 0
    assert view["fit"] == "fits"
    assert view["peak_reserved"] >= view["peak_allocated"] > 0


def test_the_model_without_a_word_before_it_and_a_pipeline_without_a_batch() -> None:
    done = tbmem("gpt2", "--seq", "64", "--pp", "2", "--json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["job"]["batch"] == 4


def test_what_a_factory_makes_keeps_its_type_unless_another_is_asked_for() -> None:
    made, asked = (
        json.loads(tbmem("tests.sources.fake.factories:half", *words, "--json").stdout)
        for words in ((), ("--dtype", "float32"))
    )

    assert asked["by_category"]["parameter"] == 2 * made["by_category"]["parameter"] > 0


def test_what_does_not_exist_ends_with_two_and_one_line() -> None:
    for arguments in (
        ("--model", "gpt9"),
        (),
        ("gpt2", "--model", "gpt2"),
        (*FACTORY, "--gpu", "abacus"),
        (*FACTORY, "--rank", "3"),
        (*FACTORY, "--tp", "0"),
        (*FACTORY, "--world-size", "0"),
        ("--model", "gpt2", "--seq", "0"),
        (*FACTORY, "--alloc-conf", "x:1"),
    ):
        done = tbmem(*arguments)

        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
        assert done.stderr.startswith("tbmem: ")


def test_what_does_not_fit_ends_with_one() -> None:
    done = tbmem("--model", "llama-7b", "--dtype", "bfloat16", "--seq", "128", "--gpu", "t4", "--no-alternatives")

    assert done.returncode == 1
    assert "does not fit" in done.stdout
