"""Make the pictures of the README: a terminal and a real TensorBoard, both showing real runs of the demo.

    make screenshots

Writes docs/terminal.svg, docs/tensorboard.png and docs/memory_*.png. Needs Chromium and its driver (Debian: packages
chromium and chromium-driver), Selenium and Pillow (pip install --group docs).
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import killpg
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import frame_to_be_available_and_switch_to_it as into_frame
from selenium.webdriver.support.expected_conditions import presence_of_element_located as presence
from selenium.webdriver.support.ui import WebDriverWait

DOCS = Path(__file__).parent
PROMPT = "$ tbmem demo --inject leak"
TAB = "#tbmem&p.tbmem.run=leak&p.tbmem.cards=leak%0Astable&p.tbmem.view="
RUNS = {"stable": (), "leak": ("--inject", "leak"), "spike": ("--inject", "spike")}


def run_demo(logdir: Path, name: str, *arguments: str) -> str:
    """Run the demo and return what its console showed."""
    command = [sys.executable, "-m", "tbmem", "demo", "--logdir", str(logdir), *arguments, f"run.name={name}"]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr


def draw_terminal(lines: str, logdir: Path) -> None:
    """The lines of a run as an SVG, as a terminal of 118 columns shows them."""
    console = Console(record=True, width=118, file=open("/dev/null", "w"))
    console.print(Text(PROMPT, style="bold"))
    for line in lines.replace(str(logdir), "runs").splitlines():
        text = Text(re.sub(r"^(\d\d:\d\d:\d\d) tbmem ", r"\1 ", line))
        text.highlight_regex(r"^\d\d:\d\d:\d\d", "dim")
        text.highlight_regex(r"\bLEAK\b.*?(?= · full| · which|$)", "bold red")
        text.highlight_regex(r"tensorboard --logdir \S+", "bold green")
        console.print(text)
    console.save_svg(str(DOCS / "terminal.svg"), title="tbmem")


def draw_tensorboard(logdir: Path) -> None:
    """TensorBoard's own time series of the three runs and two views of the Memory tab, drawn by a real browser."""
    log = logdir / "server.txt"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1"]
    with log.open("w") as lines:
        server = subprocess.Popen(command, stdout=lines, stderr=lines, start_new_session=True)
    try:
        with browser() as driver:
            address = wait_for_address(log)
            driver.get(f"{address}/?darkMode=false&smoothing=0#timeseries")
            time.sleep(6)
            settings = driver.find_element(By.XPATH, "//button[contains(., 'Settings')]")
            settings.click()
            time.sleep(4)
            driver.save_screenshot(str(DOCS / "tensorboard.png"))
            for view, height in (("overview", 780), ("timeline", 1280)):
                driver.set_window_size(1320, height)
                driver.get("about:blank")
                driver.get(f"{address}/?darkMode=false{TAB}{view}")
                WebDriverWait(driver, 60).until(into_frame((By.CSS_SELECTOR, "iframe[src*='name=tbmem']")))
                WebDriverWait(driver, 60).until(presence((By.CSS_SELECTOR, f"main[data-drawn={view}]")))
                time.sleep(1)
                save_small(driver, DOCS / f"memory_{view}.png")
    finally:
        killpg(server.pid, signal.SIGKILL)
        server.wait()


def save_small(driver: webdriver.Chrome, path: Path) -> None:
    """A screenshot without its transparency, packed as well as it can be."""
    driver.save_screenshot(str(path))
    with Image.open(path) as picture:
        picture.convert("RGB").save(path, optimize=True)


@contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    """A headless Chromium that draws with its own software renderer."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in ("headless=new", "no-sandbox", "no-first-run", "disable-background-networking"):
        options.add_argument(f"--{flag}")
    for flag in ("window-size=1440,960", "use-angle=swiftshader", "enable-unsafe-swiftshader"):
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def wait_for_address(log: Path) -> str:
    """The address that TensorBoard prints."""
    for _ in range(600):
        found = re.search(r"http://[^/\s]+:\d+", log.read_text())
        if found:
            return found[0]
        time.sleep(0.1)
    raise RuntimeError(log.read_text())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        logdir = Path(folder)
        shown = {name: run_demo(logdir, name, *arguments) for name, arguments in RUNS.items()}
        draw_terminal(shown["leak"], logdir)
        draw_tensorboard(logdir)


if __name__ == "__main__":
    main()
