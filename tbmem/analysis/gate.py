"""Where a run stands and the limits for it go in; one result per check comes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tbmem.analysis.run_state import RunState
from tbmem.analysis.tracks import Track
from tbmem.errors import UsageError
from tbmem.model.finding import FindingKind
from tbmem.units import format_bytes, format_signed


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run must hold; ``None`` where it is not asked for."""

    max_peak: int | None = None
    """Bytes."""
    max_growth: float | None = None
    """Bytes per step."""
    no_leak: bool = False
    baseline: Mapping[str, int] | None = None
    """Peaks in bytes by place, as ``peaks_of`` gives them."""
    tolerance: float = 0.05
    """Share by which a peak may lie above the baseline's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One check of one device."""

    check: str
    """``'max-peak'``, ``'max-growth'``, ``'no-leak'`` or ``'baseline'``."""
    place: str
    """``'rank 0 cpu'``."""
    holds: bool
    message: str
    measured: float | None = None
    """Bytes, or bytes per step."""
    limit: float | None = None
    """In the same unit."""
    details: Sequence[str] = field(default_factory=tuple)
    """Sentences of the findings behind it."""


def check_run(states: Sequence[RunState], limits: Limits) -> list[Result]:
    """Hold a run against its limits.

    Raises:
        UsageError: The run has nothing, or too little, to be judged by.
    """
    tracks = [(state, track) for state in states for track in state.tracks]
    if not tracks:
        raise UsageError("no step was logged in this run: there is nothing to check")
    results = [result for state, track in tracks for result in _check_track(state, track, limits)]
    here = {place_of(track) for _, track in tracks}
    for place in limits.baseline or ():
        if place not in here:
            raise UsageError(
                f"{place} is in the baseline, but not in this run; write the baseline anew if that is meant"
            )
    return results


def notes_on(states: Sequence[RunState]) -> list[str]:
    """What a reader of the results must know: a rank that has no end, or a bad one, was judged as far as it came."""
    notes = []
    for state in states:
        rank = f"rank {state.rank}"
        if state.has_died:
            notes.append(f"{rank} died without an end in step {state.step}: it is judged up to there")
        elif not state.has_ended:
            notes.append(f"{rank} has not ended: it is judged up to step {state.step}")
        elif state.ended_by is not None:
            notes.append(f"{rank} was ended by {state.ended_by}: it is judged up to step {state.step}")
    return notes


def peaks_of(states: Sequence[RunState]) -> dict[str, int]:
    """Peak of each device in bytes, by its place: what a baseline holds."""
    return {place_of(track): track.peak.bytes for state in states for track in state.tracks if track.peak is not None}


def place_of(track: Track) -> str:
    """``'rank 0 cuda:0'``."""
    return f"rank {track.rank} {track.device}"


def _check_track(state: RunState, track: Track, limits: Limits) -> Iterator[Result]:
    if limits.max_peak is not None:
        yield _at_most(track, "max-peak", limits.max_peak, f"at most {format_bytes(limits.max_peak)}")
    if limits.baseline is not None:
        yield _check_baseline(track, limits.baseline, limits.tolerance)
    if limits.max_growth is not None:
        yield _check_growth(state, track, limits.max_growth)
    if limits.no_leak:
        yield _check_leak(state, track)


def _at_most(track: Track, check: str, limit: float, words: str) -> Result:
    if track.peak is None:
        raise UsageError(f"{place_of(track)}: no peak is known, so {check} cannot be told")
    peak = track.peak
    return Result(
        check=check,
        place=place_of(track),
        holds=peak.bytes <= limit,
        message=f"peak {format_bytes(peak.bytes)} in {peak.steps}, {words}",
        measured=peak.bytes,
        limit=limit,
    )


def _check_baseline(track: Track, baseline: Mapping[str, int], tolerance: float) -> Result:
    base = baseline.get(place_of(track))
    if base is None:
        known = ", ".join(baseline) or "nothing"
        raise UsageError(f"{place_of(track)} is not in the baseline (it holds {known}); write it anew")
    change = 100 * ((track.peak.bytes if track.peak is not None else 0) / base - 1) if base else 0.0
    words = f"{change:+.1f} % of the baseline's {format_bytes(base)}, at most +{100 * tolerance:g} %"
    return _at_most(track, "baseline", base * (1 + tolerance), words)


def _check_growth(state: RunState, track: Track, limit: float) -> Result:
    growth = state.growth_per_step(track)
    if growth is None:
        raise UsageError(
            f"{place_of(track)}: too few steps were logged to tell how memory grows;"
            " train longer, or set monitor.log_every_n_steps=1"
        )
    return Result(
        check="max-growth",
        place=place_of(track),
        holds=growth <= limit,
        message=f"{format_signed(growth)} per step, at most {format_bytes(limit)}",
        measured=growth,
        limit=limit,
    )


def _check_leak(state: RunState, track: Track) -> Result:
    verdict = state.verdict(track.device)
    if verdict is FindingKind.WARMUP:
        raise UsageError(f"{place_of(track)}: the run is too short to tell whether memory leaks ({state.step} steps)")
    leaks = [each for each in state.findings if each.kind is FindingKind.LEAK and each.device == track.device]
    has_leak = verdict is FindingKind.LEAK or (verdict is FindingKind.OOM and state.is_leaking(track.device))
    return Result(
        check="no-leak",
        place=place_of(track),
        holds=not has_leak,
        message=f"verdict {verdict.label}",
        details=tuple(" · ".join(filter(None, (each.message, each.advice))) for each in leaks[-1:]),
    )
