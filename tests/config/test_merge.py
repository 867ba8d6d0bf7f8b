"""One clear line for everything that is wrong in a layer, and whose layer it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from tbmem.config import Config, MonitorConfig, ProfilingConfig, RunConfig, load_config, load_with_origins
from tbmem.errors import ConfigError


def refusal(*args: Any, **others: Any) -> str:
    """The message with which these arguments are refused: always one line."""
    with pytest.raises(ConfigError) as caught:
        load_config(*args, **others)
    message = str(caught.value)
    assert "\n" not in message
    assert message == message.strip()
    return message


def test_a_file_that_is_not_there(file: Path) -> None:
    assert refusal(file).startswith(f"{file}: no such config file")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(f"{tmp_path}: cannot read this config file")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"profiling: [", "not valid YAML"),
        (
            b"profiling: [1,2\n",
            "in line 2, column 1: did not find expected ',' or ']' (while parsing a flow sequence in",
        ),
        (b"profiling:\n\tactive: 1\n", "line 2"),
        (b"a: b: c\n", "not valid YAML"),
        (b"profiling:\n  active: 1\n  active: 2\n", "duplicate key active"),
        (b"run: {name: a}\nrun: {name: b}\n", "duplicate key run"),
        (b"- profiling\n", "not a list"),
        (b"5\n", "int"),
        (b"hello\n", "hello: unknown key"),
        (b"evidence: {max_seconds: " + b"9" * 400 + b"}\n", "9999...)"),
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
        (b"profiling:\n  foo: 5\n", "profiling.foo: unknown key; profiling has enabled, skip_first, wait, warmup"),
        (b"monitor:\n  wait: 5\n", "monitor.wait: unknown key; did you mean profiling.wait?"),
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


def test_an_argument_that_is_none_is_answered_with_the_one_that_was_meant() -> None:
    assert refusal(model=print).endswith("unknown key; a model and its optimizer are given to watch(model, optimizer)")
    assert refusal(on_findings=print) == "argument: on_findings: unknown key; did you mean on_finding?"
    # but not in a mapping, which has sections only
    assert refusal({"on_findings": print}) == "argument: on_findings: unknown key; run 'tbmem config' for all keys"


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
        ("TBMEM_LOGDIR", "runs", "no such setting; did you mean TBMEM_RUN_LOGDIR?"),
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
        ({"run.name": "a"}, 'write run={"name": ...}'),
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


@pytest.mark.parametrize(
    ("name", "meant"),
    [("run_dir", 'run={"logdir": ...}'), ("wait", 'profiling={"wait": ...}'), ("enable", "enabled")],
)
def test_a_keyword_that_is_a_key_of_a_section_is_answered_in_python(name: str, meant: str) -> None:
    assert refusal(**{name: 3}).endswith(f"did you mean {meant}?")


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


@pytest.mark.parametrize("key", list(load_with_origins(environment={}).values()))
def test_a_value_of_another_type_is_refused_with_what_the_key_takes(key: str) -> None:
    assert f"{key}: must be " in refusal(None, [f"{key}={{a: 1}}"])


def test_an_omegaconf_node_is_a_source() -> None:
    node = OmegaConf.create({"profiling": {"active": 5}, "run": {"name": "a-${profiling.active}"}})
    assert load_config(node) == Config(profiling=ProfilingConfig(active=5), run=RunConfig(name="a-5"))


def test_a_node_may_refer_to_the_rest_of_its_own_configuration() -> None:
    # given: as in a Hydra job, where tbmem's sections are one node of many
    job = OmegaConf.create({"name": "exp7", "memory": {"run": {"name": "${name}"}}})
    # when / then
    assert load_config(job.memory).run.name == "exp7"


@pytest.mark.parametrize("name", ["TBMEM_CORPUS", "TBMEMORY", "PROFILING_ACTIVE", "tbmem_enabled"])
def test_other_variables_are_left_alone(name: str) -> None:
    assert load_config(environment={name: "nonsense"}) == Config()
