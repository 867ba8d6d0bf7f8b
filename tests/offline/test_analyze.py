"""Files in, analyses out: against the oracle of the corpus, and against a real training's own sizes."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

import tbmem
from tbmem.analysis.recordings.result import DeviceAnalysis
from tbmem.errors import FileFormatError, UsageError
from tbmem.model.files import MONITOR_LOG
from tests.offline.snapshots import write_snapshot
from tests.own_tensors import only_own_tensors


def test_every_snapshot_of_the_corpus_agrees_with_the_oracle(corpus: Path) -> None:
    oracle = json.loads((corpus / "oracle.json").read_text())["snapshots"]

    for name, expected in oracle.items():
        data = tbmem.analyze(corpus / "snapshots" / name).to_dict()["devices"]
        assert data.keys() == expected["devices"].keys()
        for key, wanted in expected["devices"].items():
            device = data[key]
            found = {
                "reserved": device["reserved_bytes"],
                "allocated_size": device["allocated_bytes"],
                "active_size": device["active_bytes"],
                "requested": device["requested_bytes"],
                "inactive": device["fragmentation"]["free_bytes"],
                "largest_inactive": device["fragmentation"]["largest_free_block_bytes"],
                "events": device["events"],
                "peak_requested": device["peak_bytes"],
                "peak_event_index": device["peak_event_index"],
                "unmatched_frees": device["unmatched_frees"],
                "peak_reserved": device["peak_reserved_bytes"],
                "ooms": device["ooms"],
            }
            assert found == {figure: wanted[figure] for figure in found}, name
            assert sum(device["by_category"].values()) == device["peak_bytes"], name
            parts = device["fragmentation"]
            assert parts["cached_bytes"] + parts["fragmented_bytes"] == parts["free_bytes"], name


def test_every_trace_of_the_corpus_agrees_with_the_oracle(corpus: Path) -> None:
    oracle = json.loads((corpus / "oracle.json").read_text())["traces"]

    for name, expected in oracle.items():
        if not expected["devices"]:
            with pytest.raises(FileFormatError, match="profile_memory=True"):
                tbmem.analyze(corpus / "traces" / name)
            continue
        data = tbmem.analyze(corpus / "traces" / name).to_dict()["devices"]
        found = {f"{device['type']}:{device['index']}": device for device in data.values()}
        assert found.keys() == expected["devices"].keys()
        for key, wanted in expected["devices"].items():
            peak = wanted["peak_delta"] if wanted["peak_total"] is None else wanted["peak_total"]
            device = found[key]
            assert (device["peak_bytes"], device["unmatched_frees"]) == (peak, wanted["unmatched_free"]), name
            assert device["events"] == wanted["n"]
            assert sum(device["by_category"].values()) == device["peak_bytes"], name


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of the demo's training, with two windows."""
    import torch

    from tbmem.config import load_config
    from tbmem.demo.training import run_demo

    folder = tmp_path_factory.mktemp("runs")
    layers = [f"run.logdir={json.dumps(str(folder))}", "profiling.wait=1", "profiling.warmup=1", "profiling.active=2"]
    threads = torch.get_num_threads()
    # so small a model only loses time to more
    torch.set_num_threads(1)
    try:
        with only_own_tensors():
            run_demo(load_config(None, [*layers, "profiling.repeat=2"]), steps=9)
    finally:
        torch.set_num_threads(threads)
    return folder


def test_categories_of_the_demo_are_exact(demo_run: Path) -> None:
    # given the demo's model, and what Adam keeps: two moments like the parameter and a step count
    from tbmem.demo.training import LanguageModel, ModelSize, load_text

    parameters = list(LanguageModel(ModelSize()).parameters())
    size = sum(parameter.numel() * parameter.element_size() for parameter in parameters)

    for analysis in tbmem.analyze_all(demo_run):
        device = analysis.main
        categories = {share.name: share for share in device.by_category}
        # then the categories are these to the byte, and known
        assert categories["PARAMETER"].bytes == categories["PARAMETER"].max_bytes == size
        assert categories["OPTIMIZER_STATE"].bytes == 2 * size + 4 * len(parameters)
        assert categories["GRADIENT"].max_bytes == size
        assert {categories[name].basis for name in ("PARAMETER", "OPTIMIZER_STATE", "GRADIENT", "ACTIVATION")} == {
            "known"
        }
        # and hardly a byte of the peak is unknown, beside the text that the demo reads before it begins
        unknown = categories["UNKNOWN"].bytes if "UNKNOWN" in categories else 0
        assert unknown - load_text().nbytes < 0.01 * device.peak.bytes
        assert sum(share.bytes for share in device.by_category) == device.peak.bytes
        # and parameters have their names
        assert "blocks.0.mlp.0" in {node.path for node in device.modules.walk()}
        assert device.suspects == ()


def test_gradients_that_outlive_a_window_are_counted_once(tmp_path: Path) -> None:
    # given a training that lets go of its gradients at the beginning of the next step
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    profiling = {"wait": 1, "warmup": 1, "active": 2, "repeat": 2}
    with tbmem.MemoryCallback(run={"logdir": str(tmp_path)}, profiling=profiling) as memory:
        memory.watch(model, optimizer)
        for _ in range(9):
            optimizer.zero_grad()
            for _ in range(2):
                model(torch.randn(16, 64)).sum().backward()
            optimizer.step()
            memory.step()
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())

    # then in each window nothing is counted twice
    for analysis in tbmem.analyze_all(tmp_path):
        most = {share.name: share.max_bytes for share in analysis.main.by_category}
        assert (most["PARAMETER"], most["GRADIENT"], most["OPTIMIZER_STATE"]) == (size, size, size)


def test_many_at_once_on_any_executor(tmp_path: Path) -> None:
    # given four ranks, of which one holds more
    for rank in range(4):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[1 << 20] * (9 if rank == 2 else 4))

    here = tbmem.analyze_all(tmp_path)
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(1) as processes:
        elsewhere = tbmem.analyze_all(tmp_path, executor=threads)
        lean = tbmem.analyze_all(tmp_path, executor=processes, rows=False)

    # then all say the same, in the same order
    views = [[analysis.to_dict() for analysis in analyses] for analyses in (here, elsewhere, lean)]
    assert views[0] == views[1] == views[2]
    assert [analysis.name for analysis in here] == ["rank0", "rank1", "rank2", "rank3"]
    assert (len(here[0].timeline.rows), len(lean[0].timeline.rows)) == (4, 0)
    # and the odd one is named
    from tbmem.analysis.runs.comparison import odd_one

    odd = odd_one(here)
    assert odd is not None
    assert odd.name == "rank2"
    assert "rank2 differs from the others: peak of 9.00 MiB" in odd.message


def test_a_folder_with_other_files(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "rank0.pickle", sizes=[1024])
    (tmp_path / "other.pkl").write_bytes(pickle.dumps({"weights": [1, 2]}))
    told: list[str] = []

    [analysis] = tbmem.analyze_all(tmp_path, on_skip=told.append)

    assert analysis.name == "rank0"
    assert len(told) == 1
    assert "a pickle of something else" in told[0]
    # but what is named must be one
    with pytest.raises(FileFormatError):
        tbmem.analyze_all(tmp_path / "rank0.pickle", tmp_path / "other.pkl")


def test_one_is_one(tmp_path: Path) -> None:
    for rank in range(2):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[1024])

    with pytest.raises(UsageError, match="2 recordings"):
        tbmem.analyze(tmp_path)


def test_compare(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "a.pickle", sizes=[1000, 500])
    write_snapshot(tmp_path / "b.pickle", sizes=[1000, 800])

    comparison = tbmem.compare(tmp_path / "a.pickle", tbmem.analyze(tmp_path / "b.pickle"))

    peak = comparison.devices[0].peak
    assert (peak.before, peak.after, peak.bytes, peak.percent) == (1500, 1800, 300, 20)
    assert comparison.grown_percent == max(change.growth for change in comparison.devices[0].totals)


def test_of_two_folders_the_recordings_of_one_name_are_compared(tmp_path: Path) -> None:
    # given two runs, whose highest recordings have different names
    for run, sizes in {"old": (1000, 1200, 900), "new": (1500, 1100)}.items():
        (tmp_path / run).mkdir()
        for number, size in enumerate(sizes, start=1):
            write_snapshot(tmp_path / run / f"part{number}.pickle", sizes=[size])
    # when they are compared
    comparison = tbmem.compare(tmp_path / "old", tmp_path / "new")
    # then like is compared with like, and named with its run
    peak = comparison.devices[0].peak
    assert (peak.before, peak.after) == (1000, 1500)
    assert (comparison.before, comparison.after) == ("old/part1", "new/part1")
    assert comparison.notes[-1] == (
        "Of 3 and 2 recordings old/part1 and new/part1 are compared, the highest that both have."
    )


def test_compare_runs(demo_run: Path, tmp_path: Path) -> None:
    # given a run, and one of which only the live log is left
    run = next(path for path in demo_run.iterdir() if path.is_dir())
    log = tmp_path / "later" / MONITOR_LOG
    log.parent.mkdir(parents=True)
    shutil.copy(run / MONITOR_LOG, log)

    whole, by_log = tbmem.compare(run, run), tbmem.compare(run, tmp_path / "later")

    # then recordings are compared where both have them, and what the logs say always
    assert [device.name for device in whole.devices] == ["cpu"]
    for comparison in (whole, by_log):
        assert [device.peak.name for device in comparison.runs] == ["run_peak_bytes"]
        assert comparison.grown_percent == 0
    assert by_log.devices == ()
    assert by_log.notes
    # and a folder with neither is an error
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileFormatError, match="no recording"):
        tbmem.compare(run, tmp_path / "empty")


def test_of_a_run_whose_recordings_are_damaged_the_log_is_compared(demo_run: Path, tmp_path: Path) -> None:
    # given a run and its copy, of which each trace was cut off
    run = next(path for path in demo_run.iterdir() if path.is_dir())
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    traces = sorted(damaged.rglob("*.pt.trace.json.gz"))
    for trace in traces:
        trace.write_bytes(trace.read_bytes()[:100])
    # when
    comparison = tbmem.compare(run, damaged)
    # then what the logs say is compared, and the file is named
    assert [device.peak.name for device in comparison.runs] == ["run_peak_bytes"]
    assert comparison.devices == ()
    assert comparison.notes[0].startswith(f"Passed over: {traces[0]}: ")
    # but a recording that was named is an error
    with pytest.raises(FileFormatError, match=re.escape(traces[0].name)):
        tbmem.compare(traces[0], run)


def test_a_copied_trace_without_its_book(demo_run: Path, tmp_path: Path) -> None:
    trace = sorted(demo_run.rglob("*.pt.trace.json.gz"))[0]
    shutil.copy(trace, tmp_path)

    device: DeviceAnalysis = tbmem.analyze(tmp_path).main

    assert {share.basis for share in device.by_category} <= {"inferred", "none"}
    assert {"Linear/MatMul", "Attention"} <= {share.name for share in device.by_category}
