"""Sections, links, tables and pictures of Markdown pages."""

from __future__ import annotations

import pytest

from docs.site.markdown import relative, sections, slug, table, with_both_themes, with_links
from docs.site.repository import NotInSite, place_of, section


def test_sections_are_divided_at_headings_but_not_at_comments_of_code() -> None:
    first, parts = sections("# Title\n\nbefore\n\n## One\n\n```bash\n## no heading\n```\n\n## `two`: words\n\nlast\n")

    assert first == "before"
    assert parts == {"One": "```bash\n## no heading\n```", "`two`: words": "last"}


def test_slugs_are_those_of_github() -> None:
    assert slug("`tbmem run`: an unmodified script") == "tbmem-run-an-unmodified-script"


def test_links_within_code_stay() -> None:
    text = "[a](b.md) ![c](d.png)\n\n```python\nx[0](b)\n```\n"

    assert (
        with_links(text, lambda words, target: (words, target.upper()))
        == "[a](B.MD) ![c](D.PNG)\n\n```python\nx[0](b)\n```\n"
    )


def test_bars_are_escaped_outside_of_code() -> None:
    assert table(("a",), [("`x|y` or z|w",)]).splitlines()[-1] == r"| `x|y` or z\|w |"


def test_a_picture_is_two_images() -> None:
    dark = '<source media="(prefers-color-scheme: dark)" srcset="p_dark.png">'
    text = f'<picture>{dark}<img src="p.png" alt="words"></picture>'

    assert with_both_themes(text) == "![words](p.png#only-light)![words](p_dark.png#only-dark)"


@pytest.mark.parametrize(
    ("target", "page", "seen"),
    [
        ("guide.md#a", "views/live.md", "../guide.md#a"),
        ("views/live.md", "views/peak.md", "live.md"),
        ("guide.md#a", "guide.md", "#a"),
    ],
)
def test_addresses_as_a_page_sees_them(target: str, page: str, seen: str) -> None:
    assert relative(target, page) == seen


@pytest.mark.parametrize(
    ("target", "source", "place"),
    [
        ("docs/guide.md#settings", "README.md", "guide.md#settings"),
        ("../benchmarks/RESULTS.md", "docs/guide.md", "results.md"),
        ("../examples/keras_fit.py", "docs/keras.md", "examples.md#keras_fitpy"),
        ("memory_tab.md#live", "docs/guide.md", "views/live.md"),
        ("memory_tab.md#exports", "docs/guide.md", "views/index.md#exports"),
        ("site:api/errors.md", "docs/guide.md", "api/errors.md"),
    ],
)
def test_places_in_the_site(target: str, source: str, place: str) -> None:
    assert place_of(target, source, {("docs/memory_tab.md", "live"): "views/live.md"}) == place


@pytest.mark.parametrize("target", ["missing.md", "../Makefile"])
def test_what_the_site_does_not_have_is_an_error(target: str) -> None:
    with pytest.raises(NotInSite, match=target):
        place_of(target, "docs/guide.md", {})


def test_a_section_that_a_page_is_made_of_has_to_be_there() -> None:
    with pytest.raises(NotInSite, match=r"README.md has no section 'Nothing'"):
        section("README.md", "Nothing")
