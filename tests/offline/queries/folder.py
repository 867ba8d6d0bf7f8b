"""A log folder with runs written by hand, and questions to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tbmem.model.files import MONITOR_LOG
from tbmem.model.monitor_log import to_line
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.offline.queries.answers import Answers
from tbmem.sources.runs.catalog import Catalog, Root

GIB = 1 << 30


HEADER = {"type": "header", "rank": 0, "started": 1000.0, "host": "node7", "torch": "2.13"}


LEAK = {
    "kind": "leak",
    "severity": "critical",
    "device": "cuda:0",
    "rank": 0,
    "first_step": 3,
    "last_step": 8,
    "message": "grows",
    "advice": "use .item()",
    "evidence": {"line": {"file": "/a/train.py", "line": 41, "text": "losses.append(loss)"}, "known_by": "seen"},
}


class Folder:
    """A log folder with a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = 0.0
        self.answers = Answers(Catalog([Root(path)], clock=self.tick), now=lambda: 1100.0)

    def tick(self) -> float:
        self.clock += 10
        return self.clock

    def ask(self, view: str, **params: Any) -> Any:
        given = {name.rstrip("_"): [str(one) for one in np.atleast_1d(value)] for name, value in params.items()}
        answer = self.answers.answer(view, given)
        # plain JSON, without NaN
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer
        return answer

    def log(self, run: str, steps: int = 10, *, rank: int = 0, peak: int = GIB, end: bool = True, **more: Any) -> Path:
        path = self.path / run / MONITOR_LOG
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({**HEADER, "rank": rank}, separators=(",", ":"))]
        for step in range(1, steps + 1):
            sample = MemorySample(
                step=step,
                time=1000.0 + step,
                device="cuda:0",
                rank=rank,
                allocated=GIB // 2 + step,
                reserved=GIB,
                peak_allocated=peak,
                device_total=4 * GIB,
            )
            lines.append(to_line(SampleRow(step, 1, sample.allocated, sample.allocated, sample)))
        lines += [json.dumps({"type": kind, **value}, separators=(",", ":")) for kind, value in more.items()]
        lines += ['{"type":"end","time":1010.0,"steps":10,"verdicts":[]}'] if end else []
        path.write_text("\n".join(lines) + "\n")
        return path
