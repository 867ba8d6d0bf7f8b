"""The line of ``%%tbmem``."""

from __future__ import annotations

import pytest

from tbmem.errors import ConfigError, TbmemError, UsageError
from tbmem.notebook.options import parse_options


def test_nothing_is_the_defaults_without_the_consoles_lines() -> None:
    options = parse_options("")

    assert (options.step_on, options.has_chart) == ("first", True)
    assert options.config.config.run.logdir == "runs"
    assert options.config.config.output.console is False


def test_options_are_those_of_the_command_line() -> None:
    options = parse_options("profiling.active=5 -c light --name 'a b' --logdir=/x/y --step-on each --no-chart")

    config = options.config.config
    assert (config.run.name, config.run.logdir) == ("a b", "/x/y")
    assert (options.step_on, options.has_chart) == ("each", False)
    assert config.profiling.active == 5
    assert config.profiling.enabled is False  # the preset's


def test_the_consoles_lines_can_be_had() -> None:
    assert parse_options("output.console=true").config.config.output.console is True


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nam x", "unrecognized arguments: --nam"),
        ("--name", "expected one argument"),
        ("train.py", "'train.py' is not KEY=VALUE"),
        ("--step-on -", "write first, each, 2"),
        ("--into 2x", "--into '2x' is not the name of a variable"),
        ("-c 'light", "No closing quotation"),
        ("monitor.devise=1", "did you mean monitor.devices?"),
        ("-c nope.yaml", "no such config file"),
    ],
)
def test_what_is_wrong_is_one_line(line: str, message: str) -> None:
    with pytest.raises((UsageError, ConfigError)) as raised:
        parse_options(line)

    assert isinstance(raised.value, TbmemError)
    assert message in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
