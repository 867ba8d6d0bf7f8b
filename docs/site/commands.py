"""One page per command, from the help of its own parser and its section of ``docs/commands.md``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import typer

from docs.site.json_schemas import json_section
from docs.site.markdown import sections, slug, table
from docs.site.repository import Page, read
from tbmem.cli.main import COMMANDS, command_named

_PAGE = "docs/commands.md"
_GUIDES = {
    "analyze": "[After the run](guide.md#after-the-run)",
    "compare": "[After the run](guide.md#after-the-run)",
    "config": "[Settings](guide.md#settings), [configuration reference](site:configuration.md)",
    "demo": "[In a checkout, two commands](site:install.md#in-a-checkout-two-commands)",
    "estimate": "[Estimating memory before a run](estimate.md)",
    "export": "[Exports](memory_tab.md#exports)",
    "rehearse": "[Rehearsing a run without a GPU](rehearse.md)",
    "report": "[After the run](guide.md#after-the-run)",
    "sweep": "[Measurement beside estimate](estimate.md#tbmem-sweep)",
}
"""Where a command is described that has no section of its own."""


def command_parts() -> dict[tuple[str, str], str]:
    """The pages of commands by the file and the anchor that they are on GitHub."""
    return {(_PAGE, slug(heading)): f"commands/{name}.md" for name, (heading, _) in _described().items()}


def pages() -> Iterator[Page]:
    """The list of commands, and a page for each."""
    first, parts = sections(read(_PAGE))
    described = _described()
    rows = ((f"[`tbmem {name}`](site:commands/{name}.md)", summary) for name, summary in COMMANDS.items())
    own = [heading for heading, _ in described.values()]
    rest = "\n\n".join(f"## {heading}\n\n{text}" for heading, text in parts.items() if heading not in own)
    yield Page("commands/index.md", f"# Commands\n\n{first}\n\n{table(('command', 'use'), rows)}\n\n{rest}\n", _PAGE)
    for name in COMMANDS:
        yield Page(f"commands/{name}.md", _text(name, described.get(name, ("", ""))[1]), _PAGE)


def _described() -> dict[str, tuple[str, str]]:
    """Heading and text of the section of each command that has one."""
    found = {}
    for heading, text in sections(read(_PAGE))[1].items():
        if match := re.match(r"`tbmem (\w+)`", heading):
            found[match[1]] = heading, text
    return found


def _text(name: str, section: str) -> str:
    command = command_named(name)
    context = typer.Context(command, info_name=f"tbmem {name}")
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    parts = [f"# tbmem {name}", command.help or COMMANDS[name], f"```text\n{usage}\n```"]
    if name in _GUIDES:
        parts.append(f"Described in: {_GUIDES[name]}.")
    parts += [section] if section else []
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.get_params(context) if one.param_type_name == "option"]
    for title, params in (("Arguments", arguments), ("Options", options)):
        records = [record for one in params if (record := one.get_help_record(context)) is not None]
        if records:
            rows = [(f"`{words}`", re.sub(r"\[(default: .*?|required)\]$", r"(\1)", text)) for words, text in records]
            parts.append(f"## {title}\n\n{table((title.lower().removesuffix('s'), 'meaning'), rows)}")
    parts += json_section(name)
    return "\n\n".join(parts) + "\n"
