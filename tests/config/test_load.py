"""Layers of configuration, where values came from, and one clear line for everything that is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from tbmem.cli.config import command
from tbmem.config import Config, MonitorConfig, ProfilingConfig, RunConfig, load_config, load_with_origins
from tbmem.config.load import override_section
from tbmem.errors import ConfigError
from tests.conftest import PROJECT

CONFIGS = sorted((PROJECT / "configs").glob("*.yaml"))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of whoever runs the tests are not part of them."""
    for name in [name for name in os.environ if name.startswith("TBMEM_") and name != "TBMEM_CORPUS"]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory.yaml"


def refusal(*args: Any, **others: Any) -> str:
    """The message with which these arguments are refused: always one line."""
    with pytest.raises(ConfigError) as caught:
        load_config(*args, **others)
    message = str(caught.value)
    assert "\n" not in message
    assert message == message.strip()
    return message


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


@pytest.mark.parametrize("key", list(load_with_origins(environment={}).values()))
def test_a_value_of_another_type_is_refused_with_what_the_key_takes(key: str) -> None:
    assert f"{key}: must be " in refusal(None, [f"{key}={{a: 1}}"])


def test_every_key_has_its_own_variable() -> None:
    keys = list(load_with_origins().values())
    assert len({key.replace(".", "_") for key in keys}) == len(keys)


@pytest.mark.parametrize("name", ["TBMEM_CORPUS", "TBMEMORY", "PROFILING_ACTIVE", "tbmem_enabled"])
def test_other_variables_are_left_alone(name: str) -> None:
    assert load_config(environment={name: "nonsense"}) == Config()


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


def test_an_omegaconf_node_is_a_source() -> None:
    node = OmegaConf.create({"profiling": {"active": 5}, "run": {"name": "a-${profiling.active}"}})
    assert load_config(node) == Config(profiling=ProfilingConfig(active=5), run=RunConfig(name="a-5"))


def test_a_node_may_refer_to_the_rest_of_its_own_configuration() -> None:
    # given: as in a Hydra job, where tbmem's sections are one node of many
    job = OmegaConf.create({"name": "exp7", "memory": {"run": {"name": "${name}"}}})
    # when / then
    assert load_config(job.memory).run.name == "exp7"


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


# what is wrong, in one line


def test_a_file_that_is_not_there(file: Path) -> None:
    assert refusal(file).startswith(f"{file}: no such config file")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(f"{tmp_path}: cannot read this config file")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"profiling: [", "not valid YAML"),
        (b"profiling:\n\tactive: 1\n", "line 2"),
        (b"a: b: c\n", "not valid YAML"),
        (b"profiling:\n  active: 1\n  active: 2\n", "duplicate key active"),
        (b"run: {name: a}\nrun: {name: b}\n", "duplicate key run"),
        (b"- profiling\n", "not a list"),
        (b"5\n", "int"),
        (b"hello\n", "hello: unknown key"),
        (b"run:\n  name: caf\xe9\n", "cannot read this config file"),
        (b"\xff\xfea\x00", "cannot read this config file"),
        (b"run: {name: a}\n---\nrun: {name: b}\n", "single document"),
        (b"!!python/object/apply:os.getcwd []\n", "not valid YAML"),
        (b"null: 2\n", ""),
        (b'run: {name: "${oops"}\n', ""),
        (b"run: {name: '${oops}'}\n", "run.name"),
        (b"profiling:\n", "profiling: is a section"),
        (b"profiling: 3\n", "profiling: is a section"),
        (b"profiling: [1]\n", "profiling: is a section"),
        (b"profiling: ???\n", "profiling: has no value"),
        (b"run.name: a\n", "run.name: unknown key; write 'run: {name: ...}'"),
        (b"profilng.active: 5\n", "profilng.active: unknown key; did you mean profiling.active?"),
        (b"profiling:\n  active.x: 5\n", "profiling.active: must be a whole number, without keys below it"),
        (b"profiling:\n  active:\n", "profiling.active: must be a whole number (got null)"),
        (b"profiling:\n  active: many\n", "profiling.active: must be a whole number (got 'many')"),
        (b"run:\n  name: [a]\n", "run.name: must be a text or null (got ['a'])"),
        (b"run:\n  ranks: [0, 8]\n", "run.ranks: must be a whole number or a text (got [0, 8])"),
        (b"oom:\n  host_percent: most\n", "oom.host_percent: must be a number (got 'most')"),
        (b"profiling:\n  active: |\n    a\n    b\n", "profiling.active"),
        (b"profiling:\n  active: 0\n", "profiling.active must be at least 1"),
        (b"enabled: perhaps\n", "enabled: must be true or false (got 'perhaps')"),
        (b"patterns:\n  min_growth: 2 M\n", "patterns.min_growth: '2 M' is not a size"),
        (b"patterns:\n  min_growth: 100\n", "patterns.min_growth: 100 lacks its unit; write '100 MiB', or '100 B'"),
        (b"patterns:\n  capacity_percent: [a, b, c]\n", "patterns.capacity_percent"),
        (b"patterns:\n  capacity_percent: 80\n", "patterns.capacity_percent"),
        (b"1: 2\n", "1: unknown key"),
        (b'"a\\nb": 5\n', "unknown key"),
        (b'profiling:\n  "x\\ny": 5\n', "unknown key"),
    ],
)
def test_a_file_with_something_wrong_is_refused_in_one_line(content: bytes, part: str, file: Path) -> None:
    # given
    file.write_bytes(content)
    # when
    message = refusal(file)
    # then
    assert message.startswith(f"{file}: ")
    assert part in message


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("profiling.actve", "profiling.active"),
        ("profilng.active", "profiling"),
        ("monitor.log_every_n_step", "monitor.log_every_n_steps"),
        ("patterns.capacity_percents", "patterns.capacity_percent"),
        ("enable", "enabled"),
        ("output.sumary", "output.summary"),
    ],
)
def test_a_typo_is_answered_with_the_key_that_was_meant(typo: str, meant: str) -> None:
    message = refusal(None, [f"{typo}=1"])
    assert "unknown key" in message
    assert message.endswith(f"did you mean {meant}?")


def test_a_key_like_no_other_is_answered_with_the_way_to_all_keys() -> None:
    assert "tbmem config" in refusal(None, ["zzz=1"])


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("profiling.active", "key=value"),
        ("=5", "key=value"),
        ("", "key=value"),
        ("a..b=1", "key=value"),
        ("profiling.active=x", "profiling.active"),
        ("profiling.active=", "profiling.active"),
        ("profiling.active=1.5", "profiling.active"),
        ("profiling.active=0", "profiling.active must be at least 1"),
        ("profiling.active.x=1", "profiling.active"),
        ("profiling=5", "profiling: is a section"),
        ("enabled.x=1", "enabled"),
        ("run.name=[", "run.name=["),
        ("run.name=a\nb: c", "run.name"),
        ("run.ranks=x", "run.ranks"),
        ("patterns.capacity_percent=[1,2]", "patterns.capacity_percent"),
        ("patterns.capacity_percent=[a,b,c]", "patterns.capacity_percent: "),
        ("patterns.capacity_percent.0=5", "patterns.capacity_percent: "),
    ],
)
def test_an_override_that_is_wrong_is_quoted_in_one_line(override: str, part: str) -> None:
    assert part in refusal(None, [override])


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("TBMEM_PROFILING_ACTVE", "5", "did you mean TBMEM_PROFILING_ACTIVE?"),
        ("TBMEM_MONITOR_", "5", "no such setting"),
        ("TBMEM_PROFILING_ACTIVE", "many", "profiling.active"),
        ("TBMEM_PROFILING_ACTIVE", "", "profiling.active"),
        ("TBMEM_PROFILING_ACTIVE", "0", "profiling.active must be at least 1"),
        ("TBMEM_RUN_NAME", "[", "TBMEM_RUN_NAME"),
        ("TBMEM_RUN_NAME", "a: b: c", "TBMEM_RUN_NAME"),
        ("TBMEM_RUN_NAME", "*x", "TBMEM_RUN_NAME"),
        ("TBMEM_RUN_NAME", "${x}", "run.name"),
    ],
)
def test_a_variable_that_is_wrong_is_named_in_one_line(name: str, text: str, part: str) -> None:
    # when
    message = refusal(environment={name: text})
    # then
    assert message.startswith(f"{name}: ")
    assert part in message


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (5, "not int"),
        ([], "not list"),
        (b"memory.yaml", "not bytes"),
        (MonitorConfig(), "not MonitorConfig"),
        ("a\0b.yaml", ""),
        ({"profilling": {}}, "did you mean profiling?"),
        ({"profiling": None}, "profiling: is a section"),
        ({"profiling": object()}, "profiling"),
        ({"profiling": {"active": object()}}, "profiling"),
        ({None: 1}, "NoneType"),
        ({"run.name": "a"}, "write 'run: {name: ...}'"),
    ],
    ids=[
        "int",
        "list",
        "bytes",
        "section",
        "NUL",
        "typo",
        "no keys",
        "object",
        "object in a section",
        "key None",
        "dotted",
    ],
)
def test_a_source_that_is_wrong_is_refused_in_one_line(source: Any, part: str) -> None:
    assert part in refusal(source)


def test_a_section_keyword_with_a_typo_is_refused() -> None:
    assert "did you mean profiling?" in refusal(profilling={"active": 5})


def test_a_rule_broken_by_two_layers_together_names_the_layer_of_the_key(file: Path) -> None:
    # given
    file.write_text("patterns:\n  patience: 3\n")
    # when / then
    assert refusal(file, ["profiling.active=5"]).startswith(f"{file}: patterns.patience must be at least 6")


def test_the_error_is_a_value_error_too(file: Path) -> None:
    with pytest.raises(ValueError, match="no such config file"):
        load_config(file)


@pytest.mark.parametrize("key", ["run.name", "profiling.active"])
def test_a_value_that_is_left_open_is_refused(key: str) -> None:
    # given: OmegaConf's mark for a value that is missing, which it would skip without a word
    with pytest.raises(ConfigError, match=f"{key}: has no value"):
        load_config(None, [f"{key}=???"])


def test_values_are_flat_and_in_the_schemas_order() -> None:
    # given
    sections: Mapping[str, object] = {each.name: None for each in fields(Config)}
    # when
    keys = list(load_with_origins().values())
    # then
    assert list(dict.fromkeys(key.partition(".")[0] for key in keys)) == list(sections)
