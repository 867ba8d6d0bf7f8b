"""An address goes in; what a headless Chromium shows of it comes out: texts, pictures, complaints, hosts it asked."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install --group dev")

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "no Chromium here, so no page was looked at: apt-get install chromium chromium-driver"
TAB = "iframe[src*='name=tbmem']"
_FLAGS = (
    *("headless=new", "no-sandbox", "no-first-run", "disable-background-networking", "disable-component-update"),
    *("window-size=1440,1000", "use-angle=swiftshader", "enable-unsafe-swiftshader", "hide-scrollbars"),
    "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
_NOT_OURS = ("/index.js?_file_hash=", "/font-roboto/", "[Intervention]", "willReadFrequently")
"""TensorBoard's page warns of a library that it loads twice, and with a prefix looks for fonts where they are not;
Chromium itself remarks when a busy machine is slow, and that the test reads a canvas more than once."""


class Browser:
    """A headless Chromium.

    Args:
        pictures: Folder for screenshots.
    """

    def __init__(self, pictures: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(BROWSER)
        for flag in _FLAGS:
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self._driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        self._pictures = pictures
        self.waited = 0.0

    def open(self, address: str, view: str, *, tab: bool = True) -> None:
        """Open an address and wait until the view is drawn; ``waited`` then says how many seconds that took.

        Args:
            address: With its hash.
            view: Name of the view.
            tab: The page is a tab of TensorBoard, not a page of its own.
        """
        begin = time.monotonic()
        self.load(address)
        if tab:
            self.enter()
        self.until(f"document.querySelector('main')?.dataset.drawn === {view!r}")
        self.waited = time.monotonic() - begin
        self.settle()

    def close_page(self) -> None:
        """Leave the page, which asks for nothing from then on, and forget what it complained of."""
        self._driver.switch_to.default_content()
        self._driver.get("about:blank")
        self.complaints()

    def load(self, address: str) -> None:
        """Open an address anew."""
        self._driver.switch_to.default_content()
        self._driver.get("about:blank")
        self._driver.get(address)

    def enter(self, frame: str = TAB) -> None:
        """Go into the frame of a tab."""
        self._driver.switch_to.default_content()
        self.until(f"document.querySelector({json.dumps(frame)}) !== null")
        self._driver.switch_to.frame(self.find(frame))

    def leave(self) -> None:
        """Back to TensorBoard's own page."""
        self._driver.switch_to.default_content()

    def go(self, view: str) -> None:
        """Click on a tab of the page and wait for its view."""
        self.click(f"#tab-{view}")
        self.until(f"document.querySelector('main')?.dataset.drawn === {view!r}")
        self.until("!document.querySelector('main').hasAttribute('aria-busy')")
        self.settle()

    def settle(self) -> None:
        """Wait for two frames: a canvas gets its size and its picture in the frame after its view is drawn."""
        self._driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def script(self, code: str, *values: Any) -> Any:
        """Value of an expression in the page."""
        return self._driver.execute_script(f"return {code}", *values)

    def until(self, code: str, seconds: float = 60) -> None:
        """Wait until an expression in the page is true."""
        self._until(lambda: bool(self.script(code)), code, seconds)

    def wait_for(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        """Wait until something outside of the page is true."""
        self._until(holds, repr(holds), seconds)

    def rest(self, seconds: float) -> None:
        """Do nothing."""
        time.sleep(seconds)

    def save_to(self, folder: Path) -> None:
        """Put what the page hands out into this folder."""
        parameters = {"behavior": "allow", "downloadPath": str(folder)}
        self._driver.execute_cdp_cmd("Browser.setDownloadBehavior", parameters)

    def _until(self, holds: Callable[[], bool], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                self.picture("failed")
                raise AssertionError(f"{what} did not come true; complaints: {self.complaints()}")
            time.sleep(0.05)

    def find(self, css: str) -> Any:
        """The first element."""
        return self._driver.find_element(By.CSS_SELECTOR, css)

    def text(self, css: str) -> str:
        """Text of the first element, as it can be seen."""
        return str(self.find(css).text)

    def texts(self, css: str) -> list[str]:
        """Text of all elements, seen or not."""
        found: list[str] = self.script(
            "[...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", css
        )
        return found

    def click(self, css: str) -> None:
        """Click on the first element."""
        element = self.find(css)
        self._driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def type(self, css: str, text: str) -> None:
        """Type into an element."""
        self.find(css).send_keys(text)

    def active(self) -> str:
        """Id of the element that has the focus."""
        return str(self.script("document.activeElement.id"))

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        ActionChains(self._driver).send_keys(*keys).perform()

    def chord(self, held: Sequence[str], key: str) -> None:
        """Press a key while others are held."""
        actions = ActionChains(self._driver)
        for one in held:
            actions.key_down(one)
        actions.send_keys(key)
        for one in held:
            actions.key_up(one)
        actions.perform()

    def point(self, css: str, across: float, down: float, *, click: bool = False) -> None:
        """Move the pointer onto an element, given as shares of its width and height."""
        actions = self._to(css, across, down)
        (actions.click() if click else actions).perform()

    def point_until(
        self, css: str, across: float, down: float, code: str, *, click: bool = False, seconds: float = 60
    ) -> None:
        """Point onto an element until an expression is true: the page may draw it again right after the first time."""

        def pointed() -> bool:
            self.point(css, across + 0.001 * next(moves), down, click=click)
            self.rest(0.3)
            return bool(self.script(code))

        moves = cycle((0, 1))
        self._until(pointed, code, seconds)

    def drag(self, css: str, begin: float, end: float, down: float = 0.5) -> None:
        """Drag across an element, given as shares of its width."""
        width = self.find(css).size["width"]
        self._to(css, begin, down).click_and_hold().move_by_offset(int((end - begin) * width), 0).release().perform()

    def _to(self, css: str, across: float, down: float) -> ActionChains:
        element = self.find(css)
        self._driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        size = element.size
        return ActionChains(self._driver).move_to_element_with_offset(
            element, int((across - 0.5) * size["width"]), int((down - 0.5) * size["height"])
        )

    def dark(self, on: bool) -> None:
        """What the system prefers."""
        value = "dark" if on else "light"
        features = {"features": [{"name": "prefers-color-scheme", "value": value}]}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def size(self, width: int = 1440, height: int = 900) -> None:
        """Size of the window."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def picture(self, name: str) -> Path:
        """Keep a screenshot of what is in the window."""
        path = self._pictures / f"{name}.png"
        self._driver.save_screenshot(str(path))
        return path

    def complaints(self) -> list[str]:
        """Errors and warnings on the console since they were asked for last, without TensorBoard's own."""
        lines = self._driver.get_log("browser")
        found = [line["message"] for line in lines if line["level"] in ("SEVERE", "WARNING")]
        return [message for message in found if not any(own in message for own in _NOT_OURS)]

    def asked(self) -> list[str]:
        """Addresses that were asked for something since this was called last."""
        messages = [json.loads(line["message"])["message"] for line in self._driver.get_log("performance")]
        return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]

    def hosts(self) -> set[str]:
        """Their hosts."""
        parts = [urlsplit(url) for url in self.asked()]
        return {part.hostname or "" for part in parts if part.scheme in ("http", "https", "ws", "wss")}

    def close(self) -> None:
        """End the browser."""
        self._driver.quit()


def pictures_folder(default: Path) -> Path:
    """Where screenshots are kept: ``TBMEM_SCREENSHOTS``, or else with the test's other files."""
    folder = Path(os.environ.get("TBMEM_SCREENSHOTS") or default)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
