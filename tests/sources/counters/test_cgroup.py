from __future__ import annotations

from pathlib import Path

import pytest

from tbmem.model.oom import CGROUP, Limit
from tbmem.sources.counters.memory_limits import read_cgroup_memory
from tests.sources.fakes import GIB, MIB

_V1_NO_LIMIT = 9_223_372_036_854_771_712


class _Tree:
    """A root folder with ``proc`` and ``sys`` as the kernel would show them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def belongs_to(self, *lines: str) -> None:
        path = self.root / "proc/self/cgroup"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    def v2(self, group: str, limit: int | str, used: int, cached: int = 0) -> None:
        stat = f"anon {used - cached}\nfile {cached}\ninactive_file {cached}\n"
        self._write(f"sys/fs/cgroup/{group}", {"memory.max": limit, "memory.current": used, "memory.stat": stat})

    def v1(self, group: str, limit: int, used: int, cached: int = 0) -> None:
        stat = f"cache {cached}\ninactive_file 1\ntotal_inactive_file {cached}\n"
        files = {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": used, "memory.stat": stat}
        self._write(f"sys/fs/cgroup/memory/{group}", files)

    def _write(self, folder: str, files: dict[str, int | str]) -> None:
        path = self.root / folder
        path.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            (path / name).write_text(f"{value}".rstrip("\n") + "\n")

    def read(self) -> Limit | None:
        return read_cgroup_memory(self.root)


@pytest.fixture
def tree(tmp_path: Path) -> _Tree:
    return _Tree(tmp_path)


def test_version_2(tree: _Tree) -> None:
    # given
    tree.belongs_to("0::/jobs/7")
    tree.v2("jobs/7", 8 * GIB, 3 * GIB, cached=1 * GIB)
    # then what can be reclaimed counts as free
    assert tree.read() == Limit(name=CGROUP, total=8 * GIB, free=6 * GIB)


def test_version_1(tree: _Tree) -> None:
    # given
    tree.belongs_to("9:cpu,cpuacct:/x", "4:memory:/docker/abc", "0::/ignored")
    tree.v1("docker/abc", 4 * GIB, 3 * GIB, cached=512 * MIB)
    # then
    assert tree.read() == Limit(name=CGROUP, total=4 * GIB, free=1536 * MIB)


def test_version_1_inside_a_container_whose_own_group_is_mounted_on_top(tree: _Tree) -> None:
    # given a path that exists on the host only
    tree.belongs_to("4:memory:/docker/abc")
    tree.v1("", 4 * GIB, 1 * GIB)
    # then
    assert tree.read() == Limit(name=CGROUP, total=4 * GIB, free=3 * GIB)


def test_version_2_inside_a_container(tree: _Tree) -> None:
    # given
    tree.belongs_to("0::/")
    tree.v2("", 2 * GIB, 512 * MIB)
    # then
    assert tree.read() == Limit(name=CGROUP, total=2 * GIB, free=1536 * MIB)


def test_a_limit_further_up_counts(tree: _Tree) -> None:
    # given
    tree.belongs_to("0::/slurm/job/step")
    tree.v2("slurm", "max", 90 * GIB)
    tree.v2("slurm/job", 16 * GIB, 10 * GIB)
    tree.v2("slurm/job/step", "max", 9 * GIB)
    # then
    assert tree.read() == Limit(name=CGROUP, total=16 * GIB, free=6 * GIB)


@pytest.mark.parametrize(("outer_used", "left"), [(10 * GIB, 3 * GIB), (15 * GIB, 1 * GIB)])
def test_of_nested_limits_the_one_with_least_left_counts(tree: _Tree, outer_used: int, left: int) -> None:
    # given
    tree.belongs_to("0::/outer/inner")
    tree.v2("outer", 16 * GIB, outer_used)
    tree.v2("outer/inner", 8 * GIB, 5 * GIB)
    # when
    found = tree.read()
    # then
    assert found is not None
    assert found.free == left


def test_no_limit_in_version_2(tree: _Tree) -> None:
    # given
    tree.belongs_to("0::/user.slice")
    tree.v2("user.slice", "max", 1 * GIB)
    # then
    assert tree.read() is None


def test_no_limit_in_version_1(tree: _Tree) -> None:
    # given
    tree.belongs_to("4:memory:/")
    tree.v1("", _V1_NO_LIMIT, 1 * GIB)
    # then
    assert tree.read() is None


def test_a_group_over_its_limit_has_nothing_left(tree: _Tree) -> None:
    # given
    tree.belongs_to("0::/a")
    tree.v2("a", 1 * GIB, 1 * GIB + 4096)
    # then
    assert tree.read() == Limit(name=CGROUP, total=1 * GIB, free=0)


def test_both_versions_at_once(tree: _Tree) -> None:
    # given a hybrid machine: memory is still under version 1
    tree.belongs_to("4:memory:/a", "1:name=systemd:/a", "0::/a")
    tree.v1("a", 4 * GIB, 1 * GIB)
    (tree.root / "sys/fs/cgroup/a").mkdir()
    # then
    assert tree.read() == Limit(name=CGROUP, total=4 * GIB, free=3 * GIB)


def test_no_control_groups_at_all(tree: _Tree) -> None:
    # given macOS, Windows
    assert tree.read() is None


def test_groups_without_the_memory_controller(tree: _Tree) -> None:
    # given
    tree.belongs_to("3:cpu:/a", "0::/a")
    # then
    assert tree.read() is None


@pytest.mark.parametrize("missing", ["memory.max", "memory.current"])
def test_a_missing_file_means_no_limit(tree: _Tree, missing: str) -> None:
    # given
    tree.belongs_to("0::/a")
    tree.v2("a", 1 * GIB, 1 * MIB)
    (tree.root / "sys/fs/cgroup/a" / missing).unlink()
    # then
    assert tree.read() is None


def test_a_missing_memory_stat_leaves_the_limit_standing(tree: _Tree) -> None:
    # given: how much could be reclaimed is not known, but the limit kills all the same
    tree.belongs_to("0::/a")
    tree.v2("a", 1 * GIB, 256 * MIB)
    (tree.root / "sys/fs/cgroup/a/memory.stat").unlink()
    # then
    assert tree.read() == Limit(name=CGROUP, total=1 * GIB, free=768 * MIB)


@pytest.mark.parametrize("line", ["", "nonsense", "0:", "0::"])
def test_a_line_that_is_none_of_these_does_no_harm(tree: _Tree, line: str) -> None:
    # given
    tree.belongs_to(line)
    # then
    assert tree.read() is None


def test_this_machine_is_read() -> None:
    # when
    found = read_cgroup_memory()
    # then
    assert found is None or 0 <= found.free <= found.total
