"""Files of settings: aliases may stand for much, but not for everything."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tbmem.config.yaml_file import read_yaml
from tbmem.errors import ConfigError
from tbmem.offline.analyze import load_rules

_LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
)


def test_aliases_of_aliases_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(_LAUGHS)

    with pytest.raises(ConfigError, match=r"rules\.yaml: not YAML: its aliases stand for more than"):
        load_rules(tmp_path / "rules.yaml")


def test_a_few_aliases_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: &shared {steps: 3}\nb: *shared\n")

    assert yaml.safe_load(read_yaml(path)) == {"a": {"steps": 3}, "b": {"steps": 3}}


def test_a_file_that_is_no_file_of_settings(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n" * 100_000)

    with pytest.raises(yaml.YAMLError, match="larger than"):
        read_yaml(path)
