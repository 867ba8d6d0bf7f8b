"""The words of `tbmem run` and those of the program."""

from __future__ import annotations

import pytest

from tbmem.cli.launch import LaunchSpec, plain_spec, split


@pytest.mark.parametrize(
    ("line", "own", "program"),
    [
        ("-- a.py --lr 3", "", "a.py --lr 3"),
        ("a.py -c 3", "", "a.py -c 3"),
        ("-c my.yaml run.name=x -- a.py -- b", "-c my.yaml run.name=x", "a.py -- b"),
        ("--logdir a.py x=1 b.py c=2", "--logdir a.py x=1", "b.py c=2"),
        ("-m pkg.train -m", "", "-m pkg.train -m"),
        ("monitor.log=no -- -m pkg", "monitor.log=no", "-m pkg"),
        ("--logdir=x a.py", "--logdir=x", "a.py"),
        ("--help", "--help", ""),
        ("", "", ""),
    ],
)
def test_whose_words_are_whose(line: str, own: str, program: str) -> None:
    assert split(line.split()) == (own.split(), program.split())


def test_a_plain_line_needs_no_parser() -> None:
    order = plain_spec(
        ["-c", "my.yaml", "--step-on", "AdamW", "--logdir", "x", "profiling.active=5", "--", "a.py", "1"]
    )

    assert order == LaunchSpec(
        words=["a.py", "1"], config="my.yaml", step_on="AdamW", logdir="x", overrides=["profiling.active=5"]
    )


@pytest.mark.parametrize("line", ["--help", "--logdir=x a.py", "--nonsense a.py", "-c"])
def test_what_is_not_plain_is_left_to_the_parser(line: str) -> None:
    assert plain_spec(line.split()) is None
