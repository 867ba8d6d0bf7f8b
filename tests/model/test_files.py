"""Names of the files in a run folder, and files that are complete or absent."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
from pathlib import Path

import pytest

from tbmem.errors import RunFolderError
from tbmem.model import files
from tbmem.model.files import atomic_write, compress, write_file

HOSTS = [
    "node7",
    "gpu-01",
    "gpu-01.cluster.example.org",
    "10.0.0.7",
    "node_7",
    "my host",
    "../../etc",
    "a/b\\c",
    "хост",
    "x.pt.trace.json",
    "12345",
    "...",
    "",
]


def _worker_pattern() -> re.Pattern[str]:
    """torch-tb-profiler's own pattern, read from its file: the package itself is never imported."""
    package = importlib.util.find_spec("torch_tb_profiler")
    assert package is not None
    assert package.origin is not None
    spec = importlib.util.spec_from_file_location("tb_profiler_consts", Path(package.origin).with_name("consts.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pattern: re.Pattern[str] = module.WORKER_PATTERN
    return pattern


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("rank", [0, 12])
def test_torch_tb_profiler_finds_the_worker_and_the_window_in_a_traces_name(host: str, rank: int) -> None:
    # given
    worker = files.worker_name(host, rank)
    name = files.trace_name(worker, 1_700_000_000_123_456_789)
    # when
    match = _worker_pattern().match(name)
    # then
    assert match is not None
    assert match.groups() == (worker, ".1700000000123456789")


@pytest.mark.parametrize("host", HOSTS)
def test_no_other_file_is_taken_for_a_trace(host: str) -> None:
    # given
    worker = files.worker_name(host, 0)
    trace = files.trace_name(worker, 1)
    others = [
        files.snapshot_name(worker, 1),
        files.address_book_name(trace),
        f"{trace}{files.PARTIAL_SUFFIX}",
        f"{trace}.4711{files.PARTIAL_SUFFIX}",
        Path(files.MONITOR_LOG).name,
    ]
    # when / then
    assert [name for name in others if _worker_pattern().match(name)] == []


@pytest.mark.parametrize("host", HOSTS)
def test_a_workers_name_is_one_plain_word(host: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]+_rank3", files.worker_name(host, 3))


def test_ranks_of_one_host_have_different_names() -> None:
    assert files.worker_name("node7", 3) == "node7_rank3"
    assert len({files.worker_name("node7", rank) for rank in range(20)}) == 20


def test_later_windows_sort_after_earlier_ones() -> None:
    # given: two moments of the same run, so of as many digits
    names = [files.trace_name("w", time_ns) for time_ns in (1_700_000_000_000_000_000, 1_700_000_001_000_000_000)]
    # when / then
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        (1, "w.1.snapshot.pickle"),
        ("oom", "w.oom.snapshot.pickle"),
        ("before eval", "w.before-eval.snapshot.pickle"),
        ("../x", "w.-x.snapshot.pickle"),
        ("", "w.snapshot.snapshot.pickle"),
    ],
)
def test_a_snapshots_label_stays_inside_its_folder(label: str | int, name: str) -> None:
    assert files.snapshot_name("w", label) == name


@pytest.mark.parametrize("stem", ["w.17.pt.trace.json.gz", "w.17.snapshot.pickle", "w.17"])
def test_an_address_book_lies_beside_its_trace_or_snapshot(stem: str) -> None:
    assert files.address_book_name(stem) == "w.17.addresses.npz"


def test_the_folders() -> None:
    assert files.rank_folder(3) == "rank3"
    assert files.MONITOR_LOG == "plugins/tbmem/monitor.jsonl"


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "a.pt.trace.json.gz"

    with atomic_write(target) as partial:
        partial.write_text("all of it")
        assert not target.exists()
        assert not partial.name.endswith((".json", ".gz"))

    assert target.read_text() == "all of it"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_write(tmp_path / "a") as partial:
            partial.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_written_to_and_stays_one() -> None:
    device = Path(os.devnull)

    with atomic_write(device) as partial:
        partial.write_text("gone")

    assert not device.is_file()


def test_compress(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"x" * 10_000)

    with open(tmp_path / "plain", "rb") as plain:
        compress(plain, tmp_path / "packed")

    assert gzip.decompress((tmp_path / "packed").read_bytes()) == b"x" * 10_000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")

    with pytest.raises(OSError, match="a named pipe that nobody reads"), atomic_write(tmp_path / "a"):
        pass


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_with_a_reader_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    reader = os.open(tmp_path / "a", os.O_RDONLY | os.O_NONBLOCK)

    with atomic_write(tmp_path / "a") as path:
        path.write_bytes(b"content")

    assert os.read(reader, 100) == b"content"
    os.close(reader)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=f"x.html: cannot be written: there is no folder {tmp_path / 'none'}"):
        write_file(tmp_path / "none/x.html", b"")
