"""The command line of sweeps: what is wrong is one line; a folder of tables and recordings comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tbmem.cli.main import app
from tbmem.errors import UsageError
from tbmem.model.sweep import Moment, Status, SweepCase, SweepCell


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[SweepCase]:
    """Cases that were asked for; nothing runs."""
    from tbmem.runtime import sweep as module

    seen: list[SweepCase] = []

    def measure(case: SweepCase, path: Path) -> SweepCell:
        seen.append(case)
        return SweepCell(case=case, status=Status.MEASURED, measured=Moment(allocated=7), file=path.name)

    monkeypatch.setattr(module, "measure_in_child", measure)
    monkeypatch.setattr(module, "_predictions", lambda cases, gpu: {case: Moment(allocated=8) for case in cases})
    return seen


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, ["sweep", *arguments], catch_exceptions=False).stdout


def test_lists_are_multiplied(measured: list[SweepCase], tmp_path: Path) -> None:
    run(
        *("--model-size", "small,xl", "--context-length", "64,128", "--profile-type", "forward,training"),
        *("--device", "cpu", "--output", str(tmp_path)),
    )

    assert len(measured) == 8
    assert {case.batch for case in measured} == {4}
    assert (tmp_path / "peak_memory_summary.txt").is_file()


def test_all_is_three_lengths_two_passes_two_precisions(measured: list[SweepCase], tmp_path: Path) -> None:
    text = run("--all", "--device", "cpu", "--output", str(tmp_path))

    assert len(measured) == 12
    assert {case.size for case in measured} == {"small"}
    assert {path.name for path in tmp_path.iterdir()} == {
        "peak_memory_summary.txt",
        "mixed_precision_memory_summary.txt",
        "activation_size_analysis.txt",
        "largest_allocations.txt",
        "sweep.json",
    }
    assert "wrote 5 tables and 12 recordings" in text


def test_the_references_own_command_is_one_run_into_one_file(measured: list[SweepCase], tmp_path: Path) -> None:
    run(
        *("--model-size", "2.7B", "--context-length", "512", "--profile-type", "training", "--use-mixed-precision"),
        *("--warmup-steps", "5", "--measure-steps", "10", "--dtype", "bf16", "--device", "cpu"),
        *("--output", str(tmp_path / "x.pickle")),
    )

    (case,) = measured
    assert (case.size, case.precision, case.warmup, case.steps) == ("2.7B", "bf16", 5, 10)
    assert list(tmp_path.iterdir()) == []


def test_json(measured: list[SweepCase], tmp_path: Path) -> None:
    view = json.loads(run("--model-size", "small", "--device", "cpu", "--output", str(tmp_path), "--json"))

    assert view["cells"][0]["measured"]["allocated"] == 7
    assert view["cells"][0]["predicted"]["allocated"] == 8
    assert len(measured) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--model-size is missing"),
        (("--model-size", "small", "--device", "tpu"), "--device tpu: there are cuda"),
        (("--model-size", "small", "--device", "cuda"), "finds no GPU here"),
        (("--model-size", "small", "--context-length", "many"), "--context-length many: whole numbers"),
        (("--model-size", "small", "--profile-type", "backward"), "there are forward, training"),
        (("--model-size", "small", "--use-mixed-precision", "--dtype", "int8"), "there are fp32, bf16, fp16"),
        (("--model-size", "small,xl", "--output", "x.pickle"), "2 runs cannot share a file"),
        (("--model-size", "huge"), "--model-size huge: there are gpt2"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    result = CliRunner().invoke(app, ["sweep", *arguments])

    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)
    assert list(tmp_path.iterdir()) == []
