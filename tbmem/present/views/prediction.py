"""An estimate as the page shows it over a measurement: its figures, and its variants with their curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tbmem.analysis.estimates.fit import Estimate
from tbmem.analysis.estimates.step_curves import Step, by_category_at_peak, phase_curves, steps_of
from tbmem.analysis.plots.curves import downsampled
from tbmem.model.job import Job, job_options
from tbmem.model.timeline import AllocationTimeline
from tbmem.present.views.recording_view import RecordingView

_DEFAULT = Job(model="")
_POINTS = 60
"""Of the curve of each phase."""
_SUMMARY = (
    "gpu",
    "capacity",
    "fit",
    "sentence",
    "outside",
    "alternatives",
    "notes",
    "executed",
    "dtype",
    "architecture",
)
_FIGURES = ("reserved_range", "peak_reserved", "fit", "sentence")
_MEASURED = 2000
_STEPS = 6
"""Measured steps that are shown."""


def variant_view(estimate: Estimate, timeline: AllocationTimeline) -> dict[str, Any]:
    """An estimate with the curves of its first and its last step."""
    job = {"batch": estimate.job.batch, "checkpoint": estimate.job.checkpoint, "settings": estimate.settings}
    figures = {name: _plain(getattr(estimate, name)) for name in _FIGURES}
    return {**job, **figures, **_curves(timeline, 0, _band(asdict(estimate)))}


def _band(summary: Mapping[str, Any]) -> list[float] | None:
    """Expected range of the true peak, relative to the estimated one."""
    peak, band = summary.get("peak_allocated"), summary.get("allocated_range")
    return [size / peak for size in band] if peak and band else None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else getattr(value, "value", value)


def _curves(timeline: AllocationTimeline, device: int, band: Sequence[float] | None) -> dict[str, Any]:
    """Peak and curves in requested bytes, without the allocator's rounding, as recordings have them."""
    peak = timeline.peak(device).bytes
    curve, reserved = timeline.curve(device), timeline.reserved_curve(device)
    steps = steps_of(timeline, device)
    chosen = {"first": steps[0], "steady": steps[-1]} if steps else {}
    return {
        "peak": peak,
        "range": None if band is None else [int(peak * share) for share in band],
        "by_category": by_category_at_peak(timeline, device),
        "steps": {
            name: [asdict(phase) for phase in phase_curves(curve, reserved, step, _POINTS)]
            for name, step in chosen.items()
        },
    }


def prediction_view(
    run: str, file: str, recording: RecordingView | None, summary: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the page knows of an estimate.

    Args:
        run: Of the estimate.
        file: Of the recording, else of the figures.
        recording: The estimate's allocations, if they were written.
        summary: Its figures as JSON, if they were written.
    """
    summary = summary or {}
    job = summary.get("job") or {}
    variants = [variant for variant in summary.get("variants", ()) if isinstance(variant, dict)]
    given = {
        "batch": job.get("batch"),
        "checkpoint": bool(job.get("checkpoint")),
        "settings": summary.get("settings", ""),
    }
    base = next((at for at, variant in enumerate(variants) if given.items() <= variant.items()), None)
    if base is None and recording is not None:
        figures = {name: summary.get(name) for name in _FIGURES}
        main = recording.analysis.main
        variants.append({**given, **figures, **_curves(recording.analysis.timeline, main.number, _band(summary))})
        base = len(variants) - 1
    return {
        "run": run,
        "file": file,
        "model": job.get("model", ""),
        **{name: summary.get(name) for name in _SUMMARY},
        "peak": summary.get("peak_allocated"),
        "variants": variants,
        "base": base,
        "command": _command(job, summary, run) if len(variants) < 2 else None,
    }


def _command(job: Mapping[str, Any], summary: Mapping[str, Any], run: str) -> str:
    """The command that writes an estimate's variants."""
    words = [f"tbmem estimate {job.get('model', 'MODEL')}", *_changed(job)]
    if gpu := summary.get("gpu"):
        words.append(f"--gpu {gpu}")
    if settings := summary.get("settings"):
        words.append(f"--alloc-conf {settings}")
    return " ".join([*words, "--variants", f"--out LOGDIR/{run}" if run != "." else "--out LOGDIR"])


def _changed(job: Mapping[str, Any]) -> Iterator[str]:
    """Options of a job that differ from their defaults."""
    for option, (field, _) in job_options().items():
        value = job.get(field, getattr(_DEFAULT, field))
        if value != getattr(_DEFAULT, field) or (field == "batch" and not job.get("own_batch")):
            flag = f"--{option.replace('_', '-')}"
            yield flag if value is True else f"{flag} {value}"


def measured_view(recording: RecordingView) -> dict[str, Any]:
    """The main device of a recording over its steps around the peak.

    An x is in steps from the first that is shown. The phases of a step are equally wide, and the events of a phase are
    evenly spaced.
    """
    timeline, main = recording.analysis.timeline, recording.analysis.main
    curve = recording.curve(main.number)
    steps = _around_peak(steps_of(timeline, main.number), main.peak.event)
    edges, x = _edges(steps, main.events)
    begin, end = np.searchsorted(curve.event, (edges[0], edges[-1])).tolist()
    begin = max(begin - 1, 0)
    shown = begin + downsampled(curve.bytes[begin:end], _MEASURED)
    peak = begin + int(np.argmax(curve.bytes[begin:end]))
    reserved = timeline.reserved_curve(main.number)
    laid_out = np.interp(curve.event, edges, x)
    every = [(step, phase) for step in steps for phase in phase_curves(curve, reserved, step, 2)]
    return {
        "run": recording.run,
        "file": recording.file,
        "device": main.name,
        "measure": main.measure,
        "peak": main.peak.bytes,
        "reserved": main.reserved_bytes,
        "x": np.round(laid_out[shown], 5).tolist(),
        "bytes": curve.bytes[shown].tolist(),
        "peak_x": round(float(laid_out[peak]), 5),
        "by_category": by_category_at_peak(timeline, main.number),
        "by_phase": {
            name: max(phase.peak for _, phase in every if phase.phase == name)
            for name in dict.fromkeys(phase.phase for _, phase in every)
        },
        "steps": _laid_out(steps, edges, x),
    }


def _around_peak(steps: list[Step], event: int) -> list[Step]:
    at = next((number for number, step in enumerate(steps) if event < step.spans[-1].end), len(steps) - 1)
    begin = min(max(at - _STEPS // 2, 0), max(len(steps) - _STEPS, 0))
    return steps[begin : begin + _STEPS]


def _edges(steps: list[Step], events: int) -> tuple[list[int], list[float]]:
    """Where each phase begins, and the last ends: the event, and its x."""
    if not steps:
        return [0, max(events, 1)], [0.0, 1.0]
    edges, x = [steps[0].spans[0].begin], [0.0]
    for number, step in enumerate(steps):
        x += [number + part / len(step.spans) for part in range(1, len(step.spans) + 1)]
        edges += [span.end for span in step.spans]
    return edges, x


def _laid_out(steps: list[Step], edges: list[int], x: list[float]) -> list[dict[str, Any]]:
    place = dict(zip(edges, x, strict=True))
    return [
        {
            "step": step.number,
            "source": "first" if step.is_first else "steady",  # the estimate's step that belongs over it
            "spans": [[span.phase, round(place[span.begin], 5), round(place[span.end], 5)] for span in step.spans],
        }
        for step in steps
    ]
