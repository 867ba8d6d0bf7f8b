"""A page in a real browser, without a network: its charts are drawn and it complains of nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tbmem.analysis.analyzer import analyze
from tbmem.model.category import Category
from tbmem.present.report_page import report_page
from tests.analysis.timelines import book, recording, training_step

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_charts_are_drawn_without_a_network(tmp_path: Path) -> None:
    notes = book((-1, 7, 800, Category.PARAMETER, "net.0.weight"))
    page = tmp_path / "report.html"
    page.write_text(report_page(analyze(recording(*training_step(0, 0), *training_step(1, 10)), book=notes)))

    done = subprocess.run(
        [
            *(str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--virtual-time-budget=8000", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOME": str(tmp_path)},
    )

    charts = len(re.findall(r'class="chart', done.stdout))
    assert charts >= 3
    assert done.stdout.count("js-plotly-plot") >= charts
    assert "net" in done.stdout
    assert "CONSOLE" not in done.stderr
