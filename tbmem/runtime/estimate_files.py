"""An estimate and its run go in; a recording that every reader of recordings opens, and JSON, come out as files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from tbmem.analysis.allocator.settings import parse_settings
from tbmem.analysis.run_timeline import timeline_of_run
from tbmem.model.estimate import Estimate
from tbmem.model.fake_run import FakeRun
from tbmem.model.files import TIMELINE_SUFFIX, complete_or_nothing
from tbmem.model.job import Job
from tbmem.model.timeline_file import save_timeline
from tbmem.present.estimate import estimate_view

ESTIMATE_SUFFIX = ".estimate.json"


def write_estimate(folder: str | os.PathLike[str], estimate: Estimate, run: FakeRun) -> list[Path]:
    """Write both into a folder, which is made if missing.

    Args:
        folder: Where to; as a run folder below a logdir TensorBoard finds it.
        estimate: What came out.
        run: What it was made of.

    Raises:
        OSError: The folder cannot be written.
    """
    place = Path(folder).expanduser()
    place.mkdir(parents=True, exist_ok=True)
    stem = name_of(estimate.job)
    recording, figures = place / f"{stem}{TIMELINE_SUFFIX}", place / f"{stem}{ESTIMATE_SUFFIX}"
    about = {"model": estimate.job.model, "gpu": estimate.gpu, "rank": estimate.job.rank, **run.about}
    timeline = timeline_of_run(run, parse_settings(estimate.settings), estimate.capacity, about)
    with complete_or_nothing(recording) as partial:
        save_timeline(timeline, partial)
    with complete_or_nothing(figures) as partial:
        partial.write_text(json.dumps(estimate_view(estimate), indent=2))
    return [recording, figures]


def name_of(job: Job) -> str:
    """What tells an estimate from its neighbours: ``'gpt2_batch8_rank3'``."""
    model = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(job.model).name.partition(":")[2] or Path(job.model).stem).strip("-.")
    return "_".join(filter(None, (model or "model", f"batch{job.batch}", f"rank{job.rank}" * (job.world_size > 1))))
