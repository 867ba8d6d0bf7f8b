"""The rules of a configuration: one by one, each with its full key."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest

from tbmem.config import (
    Config,
    EvidenceConfig,
    MonitorConfig,
    OomConfig,
    OutputConfig,
    PatternsConfig,
    ProfilingConfig,
    RunConfig,
    SnapshotConfig,
)
from tbmem.errors import ConfigError

SECTIONS: dict[str, type[Any]] = {
    "run": RunConfig,
    "monitor": MonitorConfig,
    "patterns": PatternsConfig,
    "profiling": ProfilingConfig,
    "snapshot": SnapshotConfig,
    "evidence": EvidenceConfig,
    "oom": OomConfig,
    "output": OutputConfig,
}

BROKEN = [
    ("evidence.max_windows", 0),
    ("evidence.steps", 3),
    ("evidence.max_seconds", -1.0),
    ("evidence.confirm_after", 0),
    ("evidence.min_leak", "1 kilo"),
    ("run.logdir", ""),
    ("run.name", ""),
    ("run.name", " "),
    ("run.name", "."),
    ("run.name", ".."),
    ("run.name", "a\0b"),
    ("run.name", "a\ud800"),
    ("run.name", "a\udcff"),
    ("run.name", "a\nb"),
    ("run.logdir", "runs\0"),
    ("run.logdir", "runs/\udcff"),
    ("run.logdir", "s3://bucket/runs"),
    ("run.logdir", "gs://bucket"),
    ("run.logdir", "hdfs://node:9000/runs"),
    ("run.ranks", -1),
    ("run.ranks", "some"),
    ("run.ranks", ""),
    ("run.ranks", "0,"),
    ("run.ranks", "0,-8"),
    ("monitor.log_every_n_steps", 0),
    ("monitor.peaks", "never"),
    ("monitor.devices", " "),
    ("patterns.warmup_steps", -1),
    ("patterns.patience", 5),
    ("patterns.min_growth", "2 M"),
    ("patterns.min_growth", -1),
    ("patterns.min_growth_percent", -0.1),
    ("patterns.min_growth_percent", float("nan")),
    ("patterns.spike_percent", -5.0),
    ("patterns.spike_percent", float("inf")),
    ("patterns.spike_percent", float("nan")),
    ("patterns.min_spike", "tall"),
    ("patterns.capacity_percent", (87.5, 93.75)),
    ("patterns.capacity_percent", (50.0, 60.0, 70.0, 80.0)),
    ("patterns.capacity_percent", (93.75, 87.5, 97.5)),
    ("patterns.capacity_percent", (90.0, 90.0, 95.0)),
    ("patterns.capacity_percent", (0.0, 50.0, 90.0)),
    ("patterns.capacity_percent", (80.0, 90.0, 101.0)),
    ("patterns.capacity_percent", ()),
    ("profiling.skip_first", -1),
    ("profiling.wait", -1),
    ("profiling.warmup", -1),
    ("profiling.active", 0),
    ("profiling.repeat", -1),
    ("snapshot.max_entries", 0),
    ("snapshot.history", "always"),
    ("oom.host_percent", 0.0),
    ("oom.host_percent", 100.5),
    ("output.ranks", "everyone"),
]


@pytest.mark.parametrize(("key", "value"), BROKEN, ids=[f"{key}={value}" for key, value in BROKEN])
def test_a_broken_rule_names_its_key_first_and_the_value(key: str, value: object) -> None:
    # given
    section, _, name = key.partition(".")
    # when / then
    with pytest.raises(ConfigError) as caught:
        SECTIONS[section](**{name: value})
    message = str(caught.value)
    assert message.startswith(key)
    shown = list(value) if isinstance(value, tuple) else value
    assert repr(shown) in message
    assert "\n" not in message


GOOD = [
    ("run.name", None),
    ("run.name", "a/b"),
    ("run.ranks", "all"),
    ("run.ranks", "0,8"),
    ("run.ranks", 3),
    ("monitor.log_every_n_steps", 1),
    ("monitor.peaks", "run"),
    ("monitor.devices", "cuda:0,cuda:1"),
    ("patterns.warmup_steps", 0),
    ("patterns.patience", 6),
    ("patterns.min_growth", 0),
    ("patterns.capacity_percent", (1.0, 2.0, 100.0)),
    ("profiling.wait", 0),
    ("profiling.warmup", 0),
    ("profiling.active", 1),
    ("profiling.repeat", 0),
    ("snapshot.max_entries", 1),
    ("snapshot.history", "run"),
]


@pytest.mark.parametrize(("key", "value"), GOOD, ids=[f"{key}={value}" for key, value in GOOD])
def test_the_last_value_that_is_allowed(key: str, value: object) -> None:
    section, _, name = key.partition(".")
    assert getattr(SECTIONS[section](**{name: value}), name) == value


@pytest.mark.parametrize("section", [Config, *SECTIONS.values()])
def test_the_defaults_hold_their_own_rules_and_cannot_be_changed(section: type[Any]) -> None:
    # given
    values = section()
    # when / then
    with pytest.raises(FrozenInstanceError):
        setattr(values, fields(section)[0].name, None)
    with pytest.raises(TypeError):
        section(True)


def test_sections_are_the_ones_that_users_know() -> None:
    assert [each.name for each in fields(Config)] == ["enabled", *SECTIONS]
    assert all(is_dataclass(getattr(Config(), name)) for name in SECTIONS)


@pytest.mark.parametrize(
    ("ranks", "watched", "several"),
    [
        (0, {0}, False),
        ("0", {0}, False),
        (3, {3}, False),
        ("0,8", {0, 8}, True),
        (" 0, 8 ", {0, 8}, True),
        ("8,8", {8}, False),
        ("all", set(range(12)), True),
    ],
)
def test_ranks_that_are_watched(ranks: int | str, watched: set[int], several: bool) -> None:
    # given
    run = RunConfig(ranks=ranks)
    # when / then
    assert {rank for rank in range(12) if run.includes(rank)} == watched
    assert run.several is several


def test_a_rank_speaks_only_where_the_console_is_on() -> None:
    assert OutputConfig(ranks="0,8").includes(8)
    assert not OutputConfig(ranks="0,8").includes(1)
    assert not OutputConfig(ranks="all", console=False).includes(0)


@pytest.mark.parametrize(
    ("values", "cycle", "needed"),
    [
        ({}, 6, 6),
        ({"repeat": 2}, 6, 12),
        ({"skip_first": 5, "wait": 2, "warmup": 2, "active": 5, "repeat": 3}, 9, 32),
        ({"wait": 0, "warmup": 0, "active": 1, "repeat": 1}, 1, 1),
        ({"repeat": 0}, 6, 6),
    ],
)
def test_steps_of_a_cycle_and_of_all_windows(values: dict[str, int], cycle: int, needed: int) -> None:
    profiling = ProfilingConfig(**values)  # type: ignore[arg-type]
    assert (profiling.cycle, profiling.steps_needed) == (cycle, needed)


@pytest.mark.parametrize("name", ["../elsewhere", "/abs", "a/../../b", "~/x"])
def test_a_runs_name_stays_inside_of_its_logdir(name: str) -> None:
    with pytest.raises(ConfigError, match="^run.name must lie inside of run.logdir"):
        RunConfig(name=name)
