"""Where the files of the repository stand in the site, and which part of a file is a page of its own."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import NamedTuple

from docs.site.markdown import sections, slug

ROOT = Path(__file__).parents[2]
PLACES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "how_it_works.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "Dockerfile": "container.md",
    "LICENSE": "license.md",
    "SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "results.md",
    "configs": "configuration.md#presets",
    "docs/commands.md": "commands/index.md",
    "docs/memory_tab.md": "views/index.md",
    "examples": "examples.md",
}
"""Files and folders outside of ``docs``, and those of ``docs`` that are divided; all others keep their names."""


class Page(NamedTuple):
    """A generated page."""

    place: str
    """Its path in the site."""
    text: str
    source: str
    """The file that its links start from; in a folder of the repository, there or not."""


class NotInSite(ValueError):
    """A link or a section that the site does not have."""


def read(path: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def section(path: str, heading: str) -> str:
    """The text below a heading of a file, with the heading."""
    parts = sections(read(path))[1]
    if heading not in parts:
        raise NotInSite(f"{path} has no section {heading!r}, of which docs/site makes a page")
    return f"## {heading}\n\n{parts[heading]}"


def place_of(target: str, source: str, parts: dict[tuple[str, str], str]) -> str:
    """The place in the site of what a link of a file leads to.

    Args:
        target: The link, relative to the file; ``site:`` begins the name of a generated page.
        source: Path of the file in the repository.
        parts: Pages that are a section of a file, by path and anchor.
    """
    if target.startswith("site:"):
        return target.removeprefix("site:")
    path, _, anchor = target.partition("#")
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
    if (found, anchor) in parts:
        return parts[found, anchor]
    if not (ROOT / found).exists():
        raise NotInSite(f"{source} links to {target}, which does not exist")
    for folder, page in PLACES.items():
        if found == folder:
            return f"{page}#{anchor}" if anchor else page
        if found.startswith(f"{folder}/"):
            return page if "#" in page else f"{page}#{slug(posixpath.basename(found))}"
    if not found.startswith("docs/"):
        raise NotInSite(f"{source} links to {target}, which is not in the site: add it to PLACES of docs/site")
    return found.removeprefix("docs/") + (f"#{anchor}" if anchor else "")
