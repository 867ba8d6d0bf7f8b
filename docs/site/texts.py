"""Pages that are parts of the repository's texts: the README, the views of the Memory tab, examples and others."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from docs.site.markdown import sections, slug
from docs.site.repository import PLACES, ROOT, Page, read, section

_README = "README.md"
_TAB = "docs/memory_tab.md"
_WHOLE = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/RESULTS.md")

_NO_SIDEBAR = "---\nhide: [navigation]\n---\n"
_BUTTONS = """\
[Install](site:install.md){ .md-button .md-button--primary } [Quick start](site:quickstart.md){ .md-button }
[Recipes](site:recipes.md){ .md-button }"""


def pages() -> Iterator[Page]:
    """All of them."""
    first, _ = sections(read(_README))
    tab = section(_README, "The Memory tab")
    yield Page("index.md", f"{_NO_SIDEBAR}# tbmem\n\n{first}\n\n{_BUTTONS}\n\n{tab}\n", _README)
    install = "\n\n".join(section(_README, name) for name in ("Install", "In a checkout, two commands", "Requirements"))
    yield Page("install.md", f"# Installation\n\n{install}\n", _README)
    start = "\n\n".join(section(_README, name) for name in ("Ten lines", "More"))
    yield Page("quickstart.md", f"# Quick start\n\n{start}\n", _README)
    for path in _WHOLE:
        yield Page(PLACES[path], read(path), path)
    yield Page(PLACES["Dockerfile"], f"# Container\n\n```docker\n{read('Dockerfile')}```\n", "Dockerfile")
    yield Page(PLACES["LICENSE"], f"# License\n\n```text\n{read('LICENSE')}\n```\n", "LICENSE")
    yield from _views()
    yield _examples()


def view_parts() -> dict[tuple[str, str], str]:
    """The pages of views by the file and the anchor that they are on GitHub."""
    first, parts = sections(read(_TAB))
    linked = re.findall(r"\]\(#([\w-]+)\)", first)
    return {(_TAB, slug(name)): f"views/{slug(name)}.md" for name in parts if slug(name) in linked}


def _views() -> Iterator[Page]:
    first, parts = sections(read(_TAB))
    places = view_parts()
    others = [name for name in parts if (_TAB, slug(name)) not in places]
    rest = "\n\n".join(f"## {name}\n\n{parts[name]}" for name in others)
    yield Page("views/index.md", f"# The Memory tab\n\n{first}\n\n{rest}\n", _TAB)
    for name, text in parts.items():
        if name not in others:
            yield Page(places[_TAB, slug(name)], f"# {name}\n\n{text}\n", _TAB)


def _examples() -> Page:
    texts = ["# Examples\n\nEach of these programs runs in the tests."]
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        about = ast.get_docstring(ast.parse(code)) or ""
        texts.append(f"## {path.name}\n\n{about}\n\n```python\n{code}```")
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts.append("\n\n".join([f"## {path.name}", *map(_cell, cells)]))
    return Page("examples.md", "\n\n".join(texts) + "\n", "examples/README.md")


def _cell(cell: dict[str, Any]) -> str:
    """A notebook's cell; its title stands above it as the file's name."""
    text = "".join(cell["source"])
    return f"```python\n{text}\n```" if cell["cell_type"] == "code" else re.sub(r"\A# (.+)", r"**\1**", text)
