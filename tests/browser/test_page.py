"""The page of a recording in a real browser, without a network: its modules run, and it complains of nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.model.category import Category
from tbmem.offline.reports.pages import analysis_html, subject_of
from tests.analysis.timelines import book, recording, training_step

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_it_is_drawn_without_a_network(tmp_path: Path) -> None:
    notes = book((-1, 7, 800, Category.PARAMETER, "net.0.weight"))
    page = tmp_path / "report.html"
    analysis = analyze(recording(*training_step(0, 0), *training_step(1, 10)), book=notes)
    page.write_text(analysis_html(subject_of(analysis)))

    done = subprocess.run(
        [
            *(str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--virtual-time-budget=8000", "--dump-dom", page.as_uri() + "#view=peak"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOME": str(tmp_path)},
    )

    assert "net" in done.stdout
    assert "Module tree" in done.stdout
    assert "backward pass" in done.stdout
    assert "CONSOLE" not in done.stderr
