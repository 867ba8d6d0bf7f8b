"""Parts of Markdown pages: sections, tables, links and pictures."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence

_FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2`*$", flags=re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?\[)((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r'<picture><source [^>]*srcset="([^"]+)"><img src="([^"]+)" alt="([^"]*)"></picture>')


def sections(text: str) -> tuple[str, dict[str, str]]:
    """Divide a page at its headings of the second level.

    Returns:
        What stands before the first one, without the title; and the text below each heading, by the heading.
    """
    plain = _outside_code(text, lambda part: re.sub(r"^## ", "\0", part, flags=re.MULTILINE))
    first, *others = plain.split("\0")
    parts = (other.partition("\n") for other in others)
    return re.sub(r"\A# .*\n", "", first).strip(), {heading: body.strip() for heading, _, body in parts}


def title(text: str) -> str:
    """The heading of the first level."""
    found = re.search(r"^# (.*)$", text, flags=re.MULTILINE)
    return found[1] if found else ""


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; line breaks, and bars outside of code, are escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    parts = " ".join(text.split()).split("`")
    return "`".join(part if number % 2 else part.replace("|", r"\|") for number, part in enumerate(parts))


def with_links(text: str, change: Callable[[str, str], tuple[str, str]]) -> str:
    """The text with words and target of every link changed, outside of code."""

    def changed(match: re.Match[str]) -> str:
        words, target = change(match[2], match[3])
        return f"{match[1]}{words}]({target})"

    def links(part: str) -> str:
        return _LINK.sub(changed, part)

    return _outside_code(text, links)


def with_both_themes(text: str) -> str:
    """Pictures of a light and a dark theme as two images, of which the page's theme shows one."""
    return _PICTURE.sub(r"![\3](\2#only-light)![\3](\1#only-dark)", text)


def relative(target: str, page: str) -> str:
    """The address of a page or file of the site, as seen from a page."""
    path, _, anchor = target.partition("#")
    seen = posixpath.relpath(path, posixpath.dirname(page)) if path != page else ""
    return f"{seen}#{anchor}" if anchor else seen or posixpath.basename(page)


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Change what is no code block."""
    parts, end = [], 0
    for match in _FENCE.finditer(text):
        parts += [change(text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, change(text[end:])])
