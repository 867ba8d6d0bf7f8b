"""The recorded steps laid over each other."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from tbmem.analysis.plots.folded_steps import folded_steps, lines_of_steps
from tbmem.analysis.recordings.step_events import steps_of
from tbmem.model.columns import whole_numbers
from tbmem.present.views.empty_states import ONE_STEP
from tbmem.present.views.recording_view import RecordingView

COLUMNS = 600
_MOST_STEPS = 60
_MOST_LINES = 100


def steps_view(recording: RecordingView, device: str | None = None) -> dict[str, Any]:
    """Curves of the steps on one axis, where each differs from the typical one, and the lines that do.

    Raises:
        UsageError: There is no such device.
    """
    selected = recording.device(device)
    timeline, number = recording.analysis.timeline, selected.number
    steps = steps_of(timeline, number)
    # of many every n-th, counted from the last, in which a run may have failed
    shown = steps[:: -max(-(-len(steps) // _MOST_STEPS), 1)][::-1]
    view: dict[str, Any] = {
        "head": recording.head(selected),
        "count": len(steps),
        "empty": None,
        "each": [asdict(step) for step in selected.steps],  # nanoseconds, -1 where not known, and bytes
    }
    if len(shown) < 2:
        return {**view, "steps": [], "typical": [], "edges": [], "lines": [], "empty": ONE_STEP}
    folded = folded_steps(timeline, number, recording.curve(number), shown, COLUMNS)
    words = recording.line_of_stack()
    names = dict.fromkeys(words)
    index = {name: at for at, name in enumerate(names)}
    lines = lines_of_steps(timeline, number, shown, np.array([index[word] for word in words], np.int64), _MOST_LINES)
    texts = list(names)
    return {
        **view,
        "steps": [
            {"step": step.step, "bytes": whole_numbers(highest), "differs": differs.tolist()}
            for step, highest, differs in zip(shown, folded.highest, folded.differs, strict=True)
        ],
        "typical": folded.typical.tolist(),
        "edges": list(folded.edges),
        "lines": [
            {
                "line": texts[line.line],
                "allocated": list(line.allocated),
                "typical": float(np.median(line.allocated)),
                "most": max(line.allocated),
                "most_step": shown[int(np.argmax(line.allocated))].step,
                "kept_each": line.kept_each,
            }
            for line in lines
        ],
    }
