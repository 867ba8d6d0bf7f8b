"""The documentation's site is built without a warning; every link, anchor and image is there, and its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import tbmem
from docs.site.hooks import generated_pages
from tbmem.cli.main import COMMANDS
from tbmem.config.schema import schema_keys
from tbmem.present.json_output import OUTPUTS
from tests.conftest import PROJECT
from tests.docs.site import Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_text_of_the_repository_is_a_page(pages: dict[Path, Page], site: Path) -> None:
    names = {path.relative_to(site).with_suffix("").as_posix() for path in pages}

    texts = {path.stem for path in (PROJECT / "docs").glob("*.md")} - {"commands", "memory_tab"}
    assert texts <= names
    assert {f"commands/{command}" for command in COMMANDS} <= names
    views = re.findall(r"^\| .* \| \[\w+\]\(#(\w+)\) \|$", (PROJECT / "docs/memory_tab.md").read_text(), re.MULTILINE)
    assert len(views) == 10
    assert {f"views/{view}" for view in views} <= names
    assert {"index", "install", "quickstart", "configuration", "how_it_works", "results", "changelog"} <= names


def test_links_lead_to_pages_and_anchors(pages: dict[Path, Page], site: Path) -> None:
    broken = []
    for page in pages.values():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https"):
                assert re.fullmatch(r"[\w.-]+\.[a-z]+", parts.netloc), link
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(f"{page.path.relative_to(site)}: {link}")

    assert not broken, "\n".join(broken)


def test_what_pages_load_is_there_and_is_their_own(pages: dict[Path, Page], site: Path) -> None:
    for page in pages.values():
        for address in page.loaded:
            parts = urlsplit(address)
            assert not parts.netloc, f"{page.path.relative_to(site)} asks {address}"
            assert (page.path.parent / unquote(parts.path)).is_file(), f"{page.path.relative_to(site)}: {address}"
        assert not page.without_words


def test_every_screenshot_is_there_in_both_themes(pages: dict[Path, Page]) -> None:
    shown = {address for page in pages.values() for address in page.loaded if "pictures/" in address}
    names = {(Path(urlsplit(address).path).name, urlsplit(address).fragment) for address in shown}

    for path in (PROJECT / "docs/pictures").glob("*_light.png"):
        assert (path.name, "only-light") in names
        assert (path.name.replace("_light", "_dark"), "only-dark") in names


def test_the_reference_has_every_key_name_and_schema(pages: dict[Path, Page], site: Path) -> None:
    assert set(schema_keys()) <= pages[site / "configuration.html"].anchors
    anchors = set().union(*(page.anchors for path, page in pages.items() if path.parent.name == "api"))
    assert {f"tbmem.{name}" for name in tbmem.__all__} <= anchors
    assert {"tbmem.integrations.lightning.LightningMemory", "tbmem.integrations.keras.KerasMemory"} <= anchors
    for command in OUTPUTS:
        schema = json.loads((site / f"json/{command}.schema.json").read_text())
        assert schema["title"] == f"tbmem {command} --json"


def test_the_search_knows_every_page(pages: dict[Path, Page], site: Path) -> None:
    text = (site / "search/search_index.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("var __index = "))

    found = {urlsplit(one["location"]).path for one in index["docs"]}
    assert {path.relative_to(site).as_posix() for path in pages} <= found | {"index.html"}


def test_generated_pages_are_not_committed_and_each_is_in_the_navigation() -> None:
    places = [page.place for page in generated_pages()]

    assert len(places) == len(set(places))
    assert not [place for place in places if (PROJECT / "docs" / place).exists()]


def test_the_theme_asks_no_other_host() -> None:
    text = re.sub(r"!!python/\S+", "", (PROJECT / "mkdocs.yml").read_text())
    settings = yaml.safe_load(text)

    assert settings["theme"]["font"] is False
    assert "iframe-worker" in settings["extra"]["polyfills"][0]
