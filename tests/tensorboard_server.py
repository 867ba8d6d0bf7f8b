"""A log folder goes in; a TensorBoard that serves it, started as a user would, comes out, to be asked over HTTP."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any


class Server:
    """A TensorBoard that was started for the tests."""

    def __init__(self, logdir: Path | None, log: Path, *options: str) -> None:
        folder = [] if logdir is None else ["--logdir", str(logdir)]
        command = [sys.executable, "-m", "tensorboard.main", *folder, *options, "--port", "0"]
        self._log = log
        with log.open("w") as lines:
            # its own session: it starts a data server and a process per trace, which must all end with it
            self._process = subprocess.Popen(
                [*command, "--host", "127.0.0.1"], stdout=lines, stderr=lines, start_new_session=True
            )
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.address = self._wait_for_address()

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline and self._process.poll() is None:
            found = re.search(r"http://[^/\s]+:\d+/\S*", self._log.read_text())
            if found:
                return found[0].rstrip("/")
            time.sleep(0.1)
        self.close()
        raise AssertionError(self._log.read_text())

    def get(self, path: str, **query: str) -> Any:
        """The JSON at a path."""
        url = f"{self.address}{path}?{urllib.parse.urlencode(query)}"
        with self._opener.open(urllib.request.Request(url), timeout=60) as answer:
            body = answer.read()
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        return json.loads(body)

    def wait_for(self, path: str, key: str, count: int) -> Any:
        """The JSON at a path once ``key`` has ``count`` entries."""
        deadline = time.monotonic() + 120
        answer: Any = None
        while time.monotonic() < deadline:
            answer = self.get(path)
            if len(answer[key]) >= count and not answer.get("loading"):
                return answer
            time.sleep(0.5)
        raise AssertionError(answer)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
