"""Every page of the documentation's site, from the disk, in both themes and two widths; its search and its switch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.driving import Browser
from tests.docs.site import built_once

SCHEMES = ("default", "slate")
WIDTHS = (1440, 390)
WIDER_THAN_THE_PAGE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOADED = "[...document.images].every((one) => one.complete || !one.checkVisibility())"
STYLED = "(document.head.append(Object.assign(document.createElement('style'), { textContent: arguments[0] })), null)"
BROKEN_IMAGES = """[...document.images]
  .filter((one) => one.checkVisibility() && !(one.complete && one.naturalWidth > 0)).map((one) => one.src)"""
FAINT = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const seen = new Map();
  const parsed = (colour) => {
    if (!seen.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      seen.set(colour, [r, g, b, a / 255]);
    }
    return seen.get(colour);
  };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));
  const ground = (element) => {
    if (element === null) return [255, 255, 255];
    const own = parsed(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(element.parentElement));
  };
  const light = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, at) => {
    const part = colour[at] / 255;
    return sum + weight * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  }, 0);
  const faint = new Set();
  const walker = document.createTreeWalker(document.querySelector('.md-content'), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest('.headerlink, .md-clipboard, button, script, style')) continue;
    const below = ground(element);
    const text = over(parsed(getComputedStyle(element).color), below);
    const [low, high] = [light(text), light(below)].sort((one, other) => one - other);
    const contrast = (high + 0.05) / (low + 0.05);
    const place = `${element.tagName}.${element.className}: ${node.data.slice(0, 30)}`;
    if (contrast < 4.5) faint.add(`contrast ${contrast.toFixed(2)} of ${place}`);
  }
  return [...faint].slice(0, 12);
})()"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_once(tmp_path_factory)


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The address of the site on a server."""

    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_page(browser: Browser, site: Path) -> None:
    # given every page but that for addresses which a server does not find
    pages = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]
    browser.dark(False)
    browser.asked()

    # when each is opened, and shown in both themes and two widths
    wrong = [f"{path.relative_to(site)}: {what}" for path in pages for what in _complaints_of(browser, path)]

    # then nothing is missing, faint or cut off, and nobody was asked
    assert len(pages) > 45
    assert not wrong, "\n".join(wrong)
    assert browser.hosts() == set()


def _complaints_of(browser: Browser, path: Path) -> Iterator[str]:
    browser.load(path.as_uri())
    browser.script(STYLED, "* { transition: none !important; }")
    browser.script("document.querySelectorAll('img').forEach((one) => { one.loading = 'eager'; })")
    for width in WIDTHS:
        browser.size(width)
        for scheme in SCHEMES:
            browser.script("document.body.setAttribute('data-md-color-scheme', arguments[0])", scheme)
            browser.until(LOADED)
            yield from browser.script(BROKEN_IMAGES)
            yield from browser.script(FAINT)
            if (more := browser.script(WIDER_THAN_THE_PAGE)) > 0:
                yield f"{more} px wider than {width} in {scheme}"
    yield from browser.complaints()


@pytest.mark.parametrize("is_dark", [False, True])
def test_the_theme_is_that_of_the_system(is_dark: bool, browser: Browser, site: Path) -> None:
    browser.dark(is_dark)

    browser.load((site / "index.html").as_uri())

    browser.until(f"document.body.dataset.mdColorScheme === '{SCHEMES[is_dark]}'")


@pytest.mark.parametrize("start", ["disk", "server"])
def test_the_search_finds_a_key_without_a_network(start: str, browser: Browser, site: Path, served: str) -> None:
    # given a page below the first, from the disk or a server
    browser.dark(False)
    browser.size()
    browser.asked()
    browser.load(f"{site.as_uri() if start == 'disk' else served}/commands/check.html")

    # when a key of the configuration is typed into the search
    browser.until("document.querySelector('[data-md-component=search-query]') !== null")
    browser.click(".md-search__input")
    browser.find(".md-search__input").send_keys("min_resident_spike")

    # then its entry of the reference is found
    browser.until("document.querySelector('.md-search-result__link') !== null")
    address = browser.script("document.querySelector('.md-search-result__link').href")
    assert "configuration.html" in address
    assert not browser.complaints()
    assert browser.hosts() <= {"127.0.0.1"}


def test_the_theme_is_switched_and_with_it_the_screenshots(browser: Browser, site: Path) -> None:
    # given a view's page in the theme of the system, which is dark
    browser.dark(True)
    browser.size()
    browser.load((site / "views/timeline.html").as_uri())
    shown = "[...document.querySelectorAll('article img')].filter((one) => one.checkVisibility()).map((one) => one.src)"
    browser.until("document.body.dataset.mdColorScheme === 'slate'")
    (dark,) = browser.script(shown)

    # when the switch is clicked
    browser.click("form[data-md-component=palette] label:not([hidden])")

    # then the page and its picture are light
    browser.until("document.body.dataset.mdColorScheme === 'default'")
    (light,) = browser.script(shown)
    assert "timeline_dark.png" in dark
    assert "timeline_light.png" in light
