"""Scalars, written by tbmem and read by TensorBoard itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from tbmem.model.sample import MemorySample
from tbmem.present.scalars import GIB_TAGS, ScalarEncoder, scalar_values
from tests.conftest import GIB, MakeSample


def write(folder: Path, samples: Sequence[MemorySample], *, several: bool = False) -> Path:
    encoder = ScalarEncoder()
    path = folder / encoder.file_name(1000.0)
    path.write_bytes(b"".join([encoder.first_record(1000.0), *encoder.records(samples, several=several)]))
    return path


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by tag, as TensorBoard's dashboards see them."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.fixture
def full() -> MemorySample:
    """A sample of a device that has every counter, each with its own value."""
    values: dict[str, Any] = {name: number * GIB for number, name in enumerate(GIB_TAGS, start=1)}
    values |= {"alloc_retries": 7, "device_total": 80 * GIB, "host_available": GIB, "ooms": 1}
    return MemorySample(step=10, time=1000.0, device="cuda:0", **values)


def test_tensorboard_reads_every_tag_in_gib(tmp_path: Path, full: MemorySample) -> None:
    # given
    write(tmp_path, [full])
    # when
    points = read(tmp_path)
    # then
    expected = {f"memory/{name}": float(number) for number, name in enumerate(GIB_TAGS, start=1)}
    expected |= {"memory/utilization_percent": 100 * 3 / 80, "memory/alloc_retries": 7.0}
    assert {tag: [step for step, _ in found] for tag, found in points.items()} == dict.fromkeys(expected, [10])
    assert {tag: found[0][1] for tag, found in points.items()} == pytest.approx(expected)


def test_the_hosts_counters_have_tags_by_their_names() -> None:
    assert {"host_rss", "host_peak_rss", "host_private", "workers_rss", "workers_private"} < set(GIB_TAGS)
    assert not {"host_available", "profiled", "updated"} & set(GIB_TAGS)


def test_a_series_keeps_its_steps_and_times(tmp_path: Path, make_sample: MakeSample) -> None:
    # given
    samples = [make_sample(step, 45 + step / 10) for step in (10, 20, 30)]
    write(tmp_path, samples)
    # when
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    points = events.Scalars("memory/allocated")
    # then
    assert [(point.step, point.wall_time) for point in points] == [(each.step, each.time) for each in samples]
    assert [point.value for point in points] == pytest.approx([46, 47, 48])


def test_counters_that_a_device_does_not_have_give_no_tag(tmp_path: Path) -> None:
    # given
    write(tmp_path, [MemorySample(step=1, time=0.0, device="cpu", host_rss=GIB)])
    # when / then
    assert set(read(tmp_path)) == {"memory/host_rss"}


def test_a_counter_of_zero_is_a_point(tmp_path: Path) -> None:
    write(
        tmp_path, [MemorySample(step=1, time=0.0, device="cuda:0", peak_allocated=0, alloc_retries=0, device_total=GIB)]
    )
    points = read(tmp_path)
    assert set(points) == {"memory/peak_allocated", "memory/alloc_retries", "memory/utilization_percent"}
    assert {value for tag in points.values() for _, value in tag} == {0.0}


@pytest.mark.parametrize("total", [None, 0])
def test_without_a_capacity_there_is_no_utilization(total: int | None, make_sample: MakeSample) -> None:
    tags = {tag for tag, _ in scalar_values(make_sample(1, 45.0, device_total=total))}
    assert "memory/utilization_percent" not in tags
    assert "memory/allocated" in tags


def test_several_devices_have_tags_of_their_own(tmp_path: Path, make_sample: MakeSample) -> None:
    # given
    first, second = make_sample(1, 45.0), make_sample(1, 46.0, device="cuda:1")
    write(tmp_path, [first, second], several=True)
    # when
    points = read(tmp_path)
    # then
    assert points["memory/cuda:0/allocated"] == [(1, 45.0)]
    assert points["memory/cuda:1/allocated"] == [(1, 46.0)]
    assert "memory/allocated" not in points


def test_two_files_of_one_folder_have_two_names(tmp_path: Path, make_sample: MakeSample) -> None:
    # given / when
    first, second = (write(tmp_path, [make_sample(step, 45.0)]) for step in (1, 2))
    # then
    assert sorted(tmp_path.glob("events.out.tfevents.*")) == sorted([first, second])
    assert first != second


def test_a_file_cut_off_by_a_kill_keeps_its_earlier_points(tmp_path: Path, make_sample: MakeSample) -> None:
    # given
    path = write(tmp_path, [make_sample(1, 45.0), make_sample(2, 46.0)])
    # when
    path.write_bytes(path.read_bytes()[:-9])
    # then
    assert read(tmp_path)["memory/allocated"] == [(1, 45.0)]


def test_the_utilization_is_that_of_the_peak(make_sample: MakeSample) -> None:
    # given
    sample = make_sample(1, 45.0, 78.0)._replace(device_used=79 * GIB)
    # when / then
    assert dict(scalar_values(sample))["memory/utilization_percent"] == pytest.approx(97.5)


def test_tensorboards_own_reader_finds_no_damage(tmp_path: Path, make_sample: MakeSample) -> None:
    # given steps whose numbers take one, two and three bytes
    samples = [make_sample(step, 45.0) for step in range(0, 20_000, 50)]
    samples += [make_sample(20_000, 1.0)._replace(peak_allocated=None)]
    # when
    path = write(tmp_path, samples)
    # then: it compares every checksum
    events = list(EventFileLoader(str(path)).Load())
    assert [event.step for event in events[1:]] == [sample.step for sample in samples]
