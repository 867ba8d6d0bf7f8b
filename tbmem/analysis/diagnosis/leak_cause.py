"""Draws a Conclusion (confirmed, dismissed, still open), with its reason, from a Suspicion and its Evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tbmem.analysis.diagnosis import leak_text as words
from tbmem.model.evidence import (
    Conclusion,
    Contents,
    Evidence,
    Holder,
    HolderKind,
    Outcome,
    Site,
    Suspicion,
)

EXPLAINED = 0.25
"""Share of the growth that a holder must keep for it to be the cause: malloc's figure also holds what Python and
autograd add to each element, and the growth rate is an estimate."""
SURVIVING = 0.7
"""Share of the watched steps whose births must still be alive at a leaking site."""
SHORT_LIVED = 0.35
"""The same, below which a site keeps nothing: what is alive there was born in the last steps."""
CURRICULUM = 0.5
"""Share of the recurring allocations that must have got larger for the workload itself to be growing."""
_OUT_OF_SIGHT = 2 << 20
"""Growth in bytes from which memory that nothing in sight holds is a leak. Libraries keep records of
their own that come to less and then end: torch its last 2,000 collectives (1 KiB a step with DDP, 1.2 MiB in all)."""
_BESIDE = 3
"""Holders that are named beside a surviving site."""
_MISSES = 8
"""Entries of a cache that was never hit, from which on it is called useless."""


def explain(
    suspicion: Suspicion, evidence: Evidence, *, min_rate: float, room: int | None = None, looked_before: int = 0
) -> Conclusion:
    """Decide what the evidence makes of a suspicion.

    A confirmed leak needs a holder without an end, or a place whose allocations of all watched steps are still
    alive. A suspicion is dismissed when what grows has an end (a bounded container), when everything alive was
    born in the last step (the workload itself grows). Growth that goes on when everything was looked at for the
    second time, that nothing in sight holds, and that is more than a library's own records, is a leak out of sight.

    Args:
        suspicion: The growth.
        evidence: What the watched steps showed.
        min_rate: Bytes per step below which a leak is not worth a word.
        room: Bytes that are still free, if known: a bounded holder that needs more never reaches its bound.
        looked_before: How often evidence of the same growth has left it open.
    """
    case = _Case(suspicion, evidence, min_rate, room)
    for decide in (_held, _filling, _garbage, _surviving, _workload):
        conclusion = decide(case)
        if conclusion is not None:
            return conclusion
    is_large = case.rate >= min_rate and suspicion.growth >= _OUT_OF_SIGHT
    out_of_sight = looked_before > 0 and evidence.sites is not None and is_large
    return _nothing(evidence, Outcome.CONFIRMED if out_of_sight else Outcome.OPEN)


class _Case:
    """What the rules look at."""

    def __init__(self, suspicion: Suspicion, evidence: Evidence, min_rate: float, room: int | None) -> None:
        self.suspicion = suspicion
        self.evidence = evidence
        self.rate = max(suspicion.bytes_per_step, 1.0)
        self.min_rate = min_rate
        self.sites = [site for site in evidence.sites or () if site.share >= SURVIVING]
        least = min(min_rate, EXPLAINED * self.rate)
        holders = [holder for holder in evidence.holders if holder.bytes_per_step >= least]
        self.ending = [holder for holder in holders if _ends(holder, room)]
        endless = [holder for holder in holders if not _ends(holder, room)]
        self.collectable = [holder for holder in endless if _is_collectable(holder, evidence)]
        self.endless = [
            holder for holder in endless if not _is_collectable(holder, evidence) and not self._is_bystander(holder)
        ]

    @property
    def surviving(self) -> float:
        """Bytes per watched step that are still alive."""
        return sum(site.bytes_per_step for site in self.sites)

    def _is_bystander(self, holder: Holder) -> bool:
        """Whether it only grows along: plain objects that explain little, while tensors survive."""
        is_plain = holder.contents is Contents.OBJECTS or not holder.lines
        return is_plain and holder.bytes_per_step < 0.5 * self.rate and self.surviving >= 0.5 * self.rate

    def explains(self, holders: Sequence[Holder]) -> bool:
        """Whether they keep a good part of the growth, and enough to matter."""
        kept = sum(holder.bytes_per_step for holder in holders)
        return kept >= EXPLAINED * self.rate and max(kept, self.rate) >= self.min_rate


def _ends(holder: Holder, room: int | None) -> bool:
    if holder.bound is None:
        return False
    needed = max(holder.bound - holder.length, 0) * holder.bytes_per_element
    return room is None or needed < room


def _is_collectable(holder: Holder, evidence: Evidence) -> bool:
    """What the collector frees when its turn comes; it does not see cycles that run through C++ (create_graph)."""
    by_python = holder.kind is HolderKind.CONTEXT and holder.type != "create_graph"
    return evidence.collector_on and (holder.kind is HolderKind.GARBAGE or by_python)


def _is_useless(holder: Holder) -> bool:
    """A cache that keeps things and has never answered: it only holds memory, until it is full and after."""
    return holder.kind is HolderKind.LRU_CACHE and holder.hits == 0 and holder.length >= _MISSES


def _held(case: _Case) -> Conclusion | None:
    """Something without an end, or a cache of no use, keeps what grows."""
    useless = [holder for holder in case.ending if _is_useless(holder)]
    holders = case.endless + useless
    if not holders or not case.explains(holders):
        return None
    top = max(holders, key=lambda holder: holder.bytes_per_step)
    others = [holder for holder in holders if holder is not top and _matters_beside(holder, top)]
    share = min(sum(holder.bytes_per_step for holder in (top, *others)) / case.rate, 1.0)
    return Conclusion(
        outcome=Outcome.CONFIRMED,
        step=case.evidence.last_step,
        reason=words.held_by(top, others),
        cause=words.cause_of(top),
        advice=words.advice_for(top),
        share=share,
        ends_at=_end_of(top, case),
        lasting=top in useless,
        evidence=_numbers(case.evidence, (top, *others), _site_of(case)),
    )


def _filling(case: _Case) -> Conclusion | None:
    """Everything that grows is bounded: it will stop by itself."""
    if not case.ending or not case.explains(case.ending):
        return None
    top = max(case.ending, key=lambda holder: holder.bytes_per_step)
    return Conclusion(
        outcome=Outcome.DISMISSED,
        step=case.evidence.last_step,
        reason=words.fills_up(top, case.evidence.last_step),
        cause="a bounded container that fills",
        share=min(sum(holder.bytes_per_step for holder in case.ending) / case.rate, 1.0),
        ends_at=max(filter(None, (_end_of(holder, case) for holder in case.ending)), default=None),
        evidence=_numbers(case.evidence, case.ending, None),
    )


def _garbage(case: _Case) -> Conclusion | None:
    """Cycles that the collector frees when its turn comes: wait for it."""
    if not case.collectable or not case.explains(case.collectable):
        return None
    top = max(case.collectable, key=lambda holder: holder.bytes_per_step)
    return Conclusion(
        outcome=Outcome.OPEN,
        step=case.evidence.last_step,
        reason=f"{words.held_by(top, [])}: the garbage collector frees it when its turn comes",
        cause=words.cause_of(top),
        advice=words.advice_for(top),
        share=min(top.bytes_per_step / case.rate, 1.0),
        evidence=_numbers(case.evidence, (top,), _site_of(case)),
    )


def _surviving(case: _Case) -> Conclusion | None:
    """No holder is known, but what was born in every watched step is still alive."""
    kept = case.surviving
    if not case.sites or case.ending or kept < EXPLAINED * case.rate or max(kept, case.rate) < case.min_rate:
        return None
    top = _best(case.sites)
    beside = [holder for holder in case.evidence.holders if holder.bound is None and holder.lines]
    return Conclusion(
        outcome=Outcome.CONFIRMED,
        step=case.evidence.last_step,
        reason=words.survives(top, beside),
        cause=words.cause_of_site(top),
        advice=words.ADVICE_FOR_SITES,
        share=min(kept / case.rate, 1.0),
        evidence=_numbers(case.evidence, beside[:_BESIDE], top, site_first=True),
    )


def _workload(case: _Case) -> Conclusion | None:
    """Nothing born before the last step is alive: each step simply needs more."""
    sites, suspicion = case.evidence.sites, case.suspicion
    if sites is None or case.evidence.sizes_grow < CURRICULUM or suspicion.gap > case.evidence.watched_steps:
        return None
    if any(site.share > SHORT_LIVED and site.bytes_per_step >= EXPLAINED * case.rate for site in sites):
        return None
    return Conclusion(
        outcome=Outcome.DISMISSED,
        step=case.evidence.last_step,
        reason="the steps themselves need more: what is alive was born in the last step, and most sizes rise",
        cause="a workload that grows",
        evidence=_numbers(case.evidence, (), None),
    )


def _nothing(evidence: Evidence, outcome: Outcome) -> Conclusion:
    """The evidence names nothing."""
    if evidence.sites is None:
        reason = "nothing in Python's sight holds it, and births could not be watched"
    else:
        reason = "nothing in Python's or torch's sight holds it: heap without tensors, such as a C extension's"
    return Conclusion(
        outcome=outcome,
        step=evidence.last_step,
        reason=reason,
        cause="memory outside torch's sight",
        advice=words.ADVICE_OUT_OF_SIGHT,
        evidence=_numbers(evidence, (), None),
    )


def _matters_beside(holder: Holder, top: Holder) -> bool:
    return holder.bytes_per_step >= 0.2 * top.bytes_per_step and holder.contents is not Contents.OBJECTS


def _end_of(holder: Holder, case: _Case) -> int | None:
    left = holder.steps_left
    return None if left is None else case.evidence.last_step + left


def _site_of(case: _Case) -> Site | None:
    sites = [site for site in case.sites if site.stack]
    return _best(sites) if sites else None


def _best(sites: Sequence[Site]) -> Site:
    """A place in the user's own lines before one without, then the one that keeps most."""
    return max(sites, key=lambda site: (bool(site.stack), site.bytes_per_step))


def _numbers(
    evidence: Evidence, holders: Sequence[Holder], site: Site | None, *, site_first: bool = False
) -> dict[str, Any]:
    """What goes into the finding: plain JSON values, the best line first."""
    lines = [line for holder in holders for line in holder.lines]
    known_by = [f"{holder.name}: {words.KNOWN_BY[holder.known_by]}" for holder in holders if holder.lines]
    if site is not None:
        stack = list(site.stack)
        lines = stack + [line for line in lines if line not in stack] if site_first else lines + stack
        known_by.append(f"births: what {site.generations} of {site.steps} watched steps allocated there is still alive")
    return {
        "holder": holders[0].name if holders and not site_first else None,
        "holders": [words.as_dict(holder) for holder in holders],
        "line": asdict(lines[0]) if lines else None,
        "lines": [asdict(line) for line in dict.fromkeys(lines)],
        "site": words.site_as_dict(site) if site is not None else None,
        "known_by": "; ".join(known_by),
        "watched_steps": [evidence.first_step, evidence.last_step],
        "notes": list(evidence.notes),
    }
