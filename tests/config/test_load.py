"""Layers of configuration, where values came from, and one clear line for everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tbmem.cli.config import command
from tbmem.config import Config, MonitorConfig, ProfilingConfig, RunConfig, load_config, load_with_origins
from tbmem.config.load import override_section
from tbmem.errors import ConfigError
from tests.conftest import PROJECT

CONFIGS = sorted((PROJECT / "configs").glob("*.yaml"))


# layers


def test_without_any_layer_everything_is_the_default() -> None:
    loaded = load_with_origins()
    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"default"}
    assert set(loaded.origins) == set(loaded.values())


def test_later_layers_win_and_are_named_as_origin(file: Path) -> None:
    # given: each layer sets its own key and all that come before it
    file.write_text("profiling: {wait: 10, warmup: 10, active: 10, repeat: 10}\n")
    environment = {f"TBMEM_PROFILING_{key}": "20" for key in ("WARMUP", "ACTIVE", "REPEAT")}
    overrides = ["profiling.active=30", "profiling.repeat=30"]
    # when
    loaded = load_with_origins(file, overrides, environment=environment, profiling={"repeat": 40})
    # then
    profiling = loaded.config.profiling
    assert (profiling.skip_first, profiling.wait, profiling.warmup) == (0, 10, 20)
    assert (profiling.active, profiling.repeat) == (30, 40)
    keys = ("skip_first", "wait", "warmup", "active", "repeat")
    assert [loaded.origins[f"profiling.{key}"] for key in keys] == [
        "default",
        str(file),
        "TBMEM_PROFILING_WARMUP",
        "override profiling.active=30",
        "argument",
    ]


def test_a_layer_changes_nothing_but_its_own_keys(file: Path) -> None:
    file.write_text("profiling:\n  active: 5\n")
    assert load_config(file) == Config(profiling=ProfilingConfig(active=5))


def test_the_last_of_several_overrides_wins() -> None:
    assert load_config(None, ["run.name=a", "run.name=b"]).run.name == "b"


def test_the_processs_own_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBMEM_RUN_LOGDIR", "/scratch/runs")
    assert load_config().run.logdir == "/scratch/runs"


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("TBMEM_ENABLED", "0", "enabled", False),
        ("TBMEM_ENABLED", "true", "enabled", True),
        ("TBMEM_PROFILING_ACTIVE", "5", "profiling.active", 5),
        ("TBMEM_PROFILING_SKIP_FIRST", "7", "profiling.skip_first", 7),
        ("TBMEM_RUN_RANKS", "0,8", "run.ranks", "0,8"),
        ("TBMEM_RUN_NAME", "a=b", "run.name", "a=b"),
        ("TBMEM_RUN_NAME", "null", "run.name", None),
        ("TBMEM_MONITOR_DEVICES", "cuda:0,cuda:1", "monitor.devices", "cuda:0,cuda:1"),
        ("TBMEM_PATTERNS_MIN_GROWTH", "4 MiB", "patterns.min_growth", "4 MiB"),
        ("TBMEM_PATTERNS_CAPACITY_PERCENT", "[50, 60, 70]", "patterns.capacity_percent", (50.0, 60.0, 70.0)),
    ],
)
def test_a_variable_sets_its_key(name: str, text: str, key: str, value: object) -> None:
    # when
    loaded = load_with_origins(environment={name: text})
    # then
    found: Any = loaded.config
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value
    assert loaded.origins[key] == name


def test_every_key_has_its_own_variable() -> None:
    keys = list(load_with_origins().values())
    assert len({key.replace(".", "_") for key in keys}) == len(keys)


# sources


def test_a_ready_config_is_final() -> None:
    # given
    config = Config(profiling=ProfilingConfig(active=5))
    # when
    loaded = load_with_origins(config, environment={"TBMEM_PROFILING_ACTIVE": "9", "TBMEM_PROFILING_ACTVE": "9"})
    # then
    assert loaded.config == config


def test_a_ready_config_ignores_the_processs_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBMEM_ENABLED", "0")
    assert load_config(Config()).enabled


def test_arguments_still_change_a_ready_config() -> None:
    config = load_config(Config(run=RunConfig(name="a")), ["profiling.active=5"], run={"logdir": "x"})
    assert config == Config(run=RunConfig(name="a", logdir="x"), profiling=ProfilingConfig(active=5))


def test_a_mapping_is_a_source() -> None:
    loaded = load_with_origins({"enabled": False, "profiling": {"active": 5}})
    assert loaded.config == Config(enabled=False, profiling=ProfilingConfig(active=5))
    assert loaded.origins["profiling.active"] == "argument"


def test_sections_are_keywords() -> None:
    config = load_config(enabled=False, profiling={"active": 5}, monitor=MonitorConfig(peaks="run"))
    assert config == Config(enabled=False, profiling=ProfilingConfig(active=5), monitor=MonitorConfig(peaks="run"))


@pytest.mark.parametrize("as_text", [True, False])
def test_a_file_is_a_source_by_text_and_by_path(as_text: bool, file: Path) -> None:
    file.write_text("enabled: false\n")
    assert load_config(str(file) if as_text else file) == Config(enabled=False)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}\n", "---\n"])
def test_an_empty_file_is_the_defaults(text: str, file: Path) -> None:
    file.write_text(text)
    assert load_config(file) == Config()


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_every_file_that_comes_along_is_valid(path: Path) -> None:
    assert isinstance(load_config(path), Config)


def test_default_yaml_is_the_defaults_written_out() -> None:
    # given / when
    loaded = load_with_origins(PROJECT / "configs" / "default.yaml")
    # then
    assert loaded.config == Config()
    assert [key for key, origin in loaded.origins.items() if origin == "default"] == []


@pytest.mark.parametrize("name", [path.stem for path in CONFIGS])
def test_a_file_that_comes_along_has_a_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a folder without files
    monkeypatch.chdir(tmp_path)
    # when / then
    assert load_config(name) == load_config(PROJECT / "configs" / f"{name}.yaml")


def test_a_file_of_the_users_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "light").write_text("monitor: {log_every_n_steps: 7}")

    assert load_config("light").monitor.log_every_n_steps == 7


def test_a_name_that_is_unknown_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"^lite: no such config file, and no preset \(deep, default, light, oom\)"):
        load_config("lite")


def test_a_section_is_overridden_on_its_own() -> None:
    section = ProfilingConfig(wait=9, active=5)
    assert override_section("profiling", section, {"active": 7}) == ProfilingConfig(wait=9, active=7)
    assert override_section("profiling", section, {}) is section
    with pytest.raises(ConfigError, match=r"profiling\.actve: unknown key; did you mean profiling\.active"):
        override_section("profiling", section, {"actve": 7})


# what `tbmem config` prints


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["run.name='a: b # c'", "run.ranks='0,8'", "patterns.capacity_percent=[50, 60, 70.5]"],
        ["run.name='null'", "run.logdir='007'", "patterns.min_growth=0", "patterns.min_growth_percent=1e-7"],
        ["run.name='a very long name " + "x" * 200 + "'", "monitor.devices='yes'", "enabled=false"],
        ["run.name=λ", "run.ranks='8'"],
    ],
    ids=["defaults", "signs", "words that YAML knows", "long", "letters"],
)
def test_what_the_command_prints_is_a_file_with_the_same_values(
    overrides: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given
    command(None, overrides)
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    # when
    again = load_config(file)
    # then
    assert again == load_config(None, overrides)


def test_values_are_flat_and_in_the_schemas_order() -> None:
    # given
    sections: Mapping[str, object] = {each.name: None for each in fields(Config)}
    # when
    keys = list(load_with_origins().values())
    # then
    assert list(dict.fromkeys(key.partition(".")[0] for key in keys)) == list(sections)
