"""The table of recorded steps."""

from __future__ import annotations

from tbmem.analysis.recordings.result import RecordedStep
from tbmem.present.text.step_lines import step_lines


def _step(number: int, ns: int = 4_500_000) -> RecordedStep:
    known = ns >= 0
    parts = {name: part if known else -1 for name, part in (("forward_ns", 1_000_000), ("backward_ns", 2_000_000))}
    rest = {"optimizer_ns": 1_000_000 if known else -1, "other_ns": 500_000 if known else -1}
    return RecordedStep(step=number, ns=ns, **parts, **rest, allocated_bytes=3 << 20, freed_bytes=1 << 20)


def test_a_row_per_step() -> None:
    head, row = step_lines([_step(4)])

    assert head.split("  ")[0] == "step"
    words = " ".join(row.split())
    assert words == "4 4.500 ms 1.000 ms 2.000 ms 1.000 ms 0.500 ms 3.00 MiB 1.00 MiB"
    assert len(head) == len(row)


def test_of_many_the_last_are_shown_and_counted() -> None:
    lines = step_lines([_step(number) for number in range(20)], most=3)

    assert [line.split()[0] for line in lines[1:-1]] == ["17", "18", "19"]
    assert lines[-1] == "the last 3 of 20 steps"


def test_unknown_durations_are_dashes() -> None:
    _, row = step_lines([_step(1, ns=-1)])

    assert " ".join(row.split()) == "1 - - - - - 3.00 MiB 1.00 MiB"
