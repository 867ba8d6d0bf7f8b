"""The command line of sweeps: what is wrong is one line; a folder of tables and recordings comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tbmem.cli.main import app
from tbmem.errors import UsageError
from tbmem.model.sweep import MemoryPeak, Status, SweepCase, SweepCell
from tests.json_output import validate


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[SweepCase]:
    """Cases that were asked for; nothing runs."""
    from tbmem.estimator import sweep as module

    seen: list[SweepCase] = []

    def measure(case: SweepCase, path: Path) -> SweepCell:
        seen.append(case)
        return SweepCell(case=case, status=Status.MEASURED, measured=MemoryPeak(allocated=7), file=path.name)

    monkeypatch.setattr(module, "measure_in_child", measure)
    monkeypatch.setattr(module, "_predictions", lambda cases, gpu: {case: MemoryPeak(allocated=8) for case in cases})
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


def test_a_folder_has_the_tables_and_all_of_it_as_json(measured: list[SweepCase], tmp_path: Path) -> None:
    text = run(
        *("--model-size", "small", "--context-length", "128,256", "--profile-type", "forward,training"),
        *("--use-mixed-precision", "--dtype", "fp32,bf16", "--device", "cpu", "--output", str(tmp_path)),
    )

    assert len(measured) == 8
    assert {path.name for path in tmp_path.iterdir()} == {
        "peak_memory_summary.txt",
        "mixed_precision_memory_summary.txt",
        "activation_size_analysis.txt",
        "largest_allocations.txt",
        "sweep.json",
    }
    assert "wrote 4 tables, 8 recordings and sweep.json" in text


def test_the_references_own_command_is_one_run_into_one_file(measured: list[SweepCase], tmp_path: Path) -> None:
    run(
        *("--model-size", "2.7B", "--context-length", "512", "--profile-type", "training", "--use-mixed-precision"),
        *("--warmup-steps", "5", "--measure-steps", "10", "--dtype", "bf16", "--device", "cpu"),
        *("--output", str(tmp_path / "x.pickle")),
    )

    (case,) = measured
    assert (case.size, case.precision, case.warmup, case.steps) == ("2.7B", "bf16", 5, 10)
    assert list(tmp_path.iterdir()) == []


def test_what_is_measured_is_kept_when_it_is_interrupted(
    measured: list[SweepCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given three lengths, when Ctrl-C comes in the second, then the first stands in the tables."""
    from tbmem.estimator import sweep as module

    first = module.measure_in_child

    def interrupted(case: SweepCase, path: Path) -> SweepCell:
        if case.context == 32:
            raise KeyboardInterrupt
        return first(case, path)

    monkeypatch.setattr(module, "measure_in_child", interrupted)
    arguments = ["sweep", "--model-size", "small", "--context-length", "16,32,64", "--device", "cpu"]
    result = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path)])

    assert result.exit_code != 0
    assert f"interrupted: 1 of 3 runs were done; their tables are in {tmp_path}" in result.stderr
    assert [case.context for case in measured] == [16]
    (cell,) = json.loads((tmp_path / "sweep.json").read_text())["cells"]
    assert cell["measured"]["allocated"] == 7
    assert "16" in (tmp_path / "peak_memory_summary.txt").read_text()


@pytest.mark.parametrize(
    ("output", "words"),
    [("file", "a file is in the way"), ("file/below", "a file is in the way"), ("folder.npz", "is a folder")],
)
def test_where_nothing_can_be_written_nothing_is_begun(
    output: str, words: str, measured: list[SweepCase], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.npz").mkdir()

    arguments = ["sweep", "--model-size", "small", "--device", "cpu", "--output", str(tmp_path / output)]
    result = CliRunner().invoke(app, arguments)

    assert isinstance(result.exception, UsageError)
    assert result.stderr == ""
    assert f"--output {tmp_path / output}" in str(result.exception)
    assert words in str(result.exception)
    assert measured == []


@pytest.mark.parametrize(("status", "code"), [(Status.FAILED, 1), (Status.OUT_OF_MEMORY, 0), (Status.MEASURED, 0)])
def test_a_run_that_failed_by_an_error_is_exit_code_1_and_one_without_memory_is_a_result(
    status: Status, code: int, measured: list[SweepCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given one of two runs that ends so, when it is swept, then the tables are there and the exit code tells."""
    from tbmem.estimator import sweep as module

    first = module.measure_in_child

    def measure(case: SweepCase, path: Path) -> SweepCell:
        return first(case, path) if case.context == 16 else SweepCell(case=case, status=status, note="why")

    monkeypatch.setattr(module, "measure_in_child", measure)
    arguments = ["sweep", "--model-size", "small", "--context-length", "16,32", "--device", "cpu"]
    result = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path)])

    assert result.exit_code == code
    assert ("1 of 2 runs failed by an error" in result.stderr) == (code == 1)
    assert (tmp_path / "peak_memory_summary.txt").is_file()


def test_types_have_the_same_names_as_in_estimates(measured: list[SweepCase], tmp_path: Path) -> None:
    names = ("--use-mixed-precision", "--dtype", "float32, torch.bfloat16,FP16")
    run("--model-size", "small", *names, "--device", "cpu", "--output", str(tmp_path))

    assert [case.precision for case in measured] == ["fp32", "bf16", "fp16"]


def test_json(measured: list[SweepCase], tmp_path: Path) -> None:
    view = json.loads(run("--model-size", "small", "--device", "cpu", "--output", str(tmp_path), "--json"))
    validate("sweep", view)

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
        (("--model-size", "small", "--context-length", "²"), "--context-length ²: whole numbers"),
        (("--model-size", "small", "--output", " "), "--output is empty"),
        (("--model-size", "small", "--context-length", "9" * 20), "whole numbers from 1 on"),
        (("--model-size", "gpt2", "--context-length", "2048"), "gpt2 has learnt positions for 1024 tokens only"),
        (("--model-size", "small", "--dtype", "bf17"), "--dtype bf17: there are fp32, bf16, fp16"),
        (("--model-size", "small", "--dtype", "bf16"), "--dtype bf16: is autocast's type; add --use-mixed-precision"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    result = CliRunner().invoke(app, ["sweep", *arguments])

    assert isinstance(result.exception, UsageError)
    assert result.stderr == ""
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)
    assert list(tmp_path.iterdir()) == []
