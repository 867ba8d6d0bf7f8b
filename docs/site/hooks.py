"""Hooks of MkDocs: adds the generated pages, and turns links and pictures of the repository into those of the site."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from docs.site import api, commands, configuration, json_schemas, texts
from docs.site.markdown import relative, title, with_both_themes, with_links
from docs.site.repository import NotInSite, Page, place_of

_DIVIDED = ("commands.md", "memory_tab.md")
"""Files of ``docs`` whose sections are pages of their own."""


def generated_pages() -> Iterator[Page]:
    """Every page that is no file of ``docs``."""
    yield from texts.pages()
    yield from commands.pages()
    yield configuration.page()
    yield from json_schemas.pages()
    yield from api.pages()


def on_config(config: Any) -> Any:
    """Generate the pages, and put them where the navigation names their folder."""
    try:
        config.extra["generated"] = {page.place: page for page in generated_pages()}
    except NotInSite as error:
        raise PluginError(str(error)) from error
    config.nav = _with_folders(config.nav, list(config.extra["generated"]))
    return config


def _with_folders(entry: Any, places: list[str]) -> Any:
    if isinstance(entry, dict):
        return {title: _with_folders(below, places) for title, below in entry.items()}
    if isinstance(entry, list):
        filled: list[Any] = []
        for one in entry:
            is_folder = isinstance(one, str) and one.endswith("/")
            filled += (
                [place for place in places if place.startswith(one)] if is_folder else [_with_folders(one, places)]
            )
        return filled
    return entry


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages and the schemas."""
    for place in _DIVIDED:
        file = files.get_file_from_path(place)
        assert file is not None
        files.remove(file)
    for place, page in config.extra["generated"].items():
        files.append(File.generated(config, place, content=page.text))
    for name, schema in json_schemas.schemas().items():
        files.append(File.generated(config, f"json/{name}.schema.json", content=json.dumps(schema, indent=2) + "\n"))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links and pictures as the site has them."""
    place = page.file.src_uri
    generated = config.extra["generated"].get(place)
    source = f"docs/{place}" if generated is None else generated.source
    parts = {**texts.view_parts(), **commands.command_parts()}

    def changed(words: str, target: str) -> tuple[str, str]:
        if target.startswith(("http://", "https://", "mailto:")):
            return words, target
        if target.startswith("#") and (source, target[1:]) not in parts:
            return words, target
        address, hash_sign, theme = target.partition("#only-")
        found = place_of(address, source, parts)
        if words.endswith(".md"):  # on GitHub a file's name, here the page's
            words = title(_text_of(found.partition("#")[0], config, files))
        return words, relative(found, place) + hash_sign + theme

    try:
        return with_links(with_both_themes(markdown), changed)
    except NotInSite as error:
        raise PluginError(str(error)) from error


def _text_of(place: str, config: Any, files: Files) -> str:
    generated = config.extra["generated"].get(place)
    file = files.get_file_from_path(place)
    return generated.text if generated is not None else file.content_string if file is not None else ""


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Docstrings are written for a terminal too: what introduces their code and names their roles is left out."""
    html = html.replace("<p>::</p>", "").replace("::</p>", ":</p>")
    return re.sub(r":(?:func|class|meth|mod|attr):(?=<code>)", "", html)
