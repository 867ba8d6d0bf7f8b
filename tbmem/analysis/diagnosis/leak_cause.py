"""Draws a Conclusion (confirmed, dismissed, still open), with its reason, from a Suspicion and its Evidence."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any

from tbmem.analysis.diagnosis import leak_text
from tbmem.model.evidence import Channel, Conclusion, Contents, Evidence, Holder, HolderKind, Outcome, Site, Suspicion

_EXPLAINED = 0.25
"""Share of the growth that a holder must keep for it to be the cause: malloc's figure also holds what Python and
autograd add to each element, and the growth rate is an estimate."""
_SURVIVING = 0.7  # share of the watched steps whose allocations must still be alive at a leaking site
_SHORT_LIVED = 0.35  # the same, below which a site keeps nothing: what is alive there was allocated in the last steps
_CURRICULUM = 0.5  # share of the recurring allocations that must have got larger for the workload itself to be growing
_OUT_OF_SIGHT = 2 << 20
"""Growth in bytes from which memory without a known holder is a leak. Libraries keep records of
their own that come to less and then end: torch its last 2,000 collectives (1 KiB a step with DDP, 1.2 MiB in all)."""
_ALONG = 0.1
"""Share of the growth from which what explains too little to be the holder is named as what grows along."""
_RELEASED = 16
"""Times the growth that a graph must gain to be no part of it, or anything that is on an accelerator. Where it began
late within a trend, or where few of the watched steps fall between two additions, it gains some times as much."""
_REACHES = 0.25
"""Share of the steps since growth began that a graph must reach back to have grown all the time. One that follows
episodes of different lengths gains less in some steps than in those that were watched."""
_BESIDE = 3  # holders that are named beside a surviving site
_RISES, _AS_LONG = 3, 6
"""Rises that must fall into the watched steps for a holder to be seen, and times the distance of two that are enough:
there are three intervals between observations, and rises are not quite regular."""
_MISSES = 8  # entries of a cache that was never hit, from which on it is called useless


def explain(
    suspicion: Suspicion,
    evidence: Evidence,
    *,
    min_rate: float,
    room: int | None = None,
    allocated_growth: float | None = None,
    looked_before: int = 0,
    working_sets: Container[str] = (),
) -> Conclusion:
    """Decide what the evidence says about a suspicion.

    A confirmed leak needs a holder without a bound, or a site whose allocations of all watched steps are still
    alive. A suspicion is dismissed when what grows has a bound (a bounded container), or when the workload itself
    grows: what holds it keeps nothing from step to step, or everything alive was allocated in the last step. Growth
    that goes on when everything was looked at for the second time, that has no known holder, and that is more than a
    library's own records, is a leak out of sight.

    Args:
        suspicion: The growth.
        evidence: What the watched steps showed.
        min_rate: Bytes per step below which a leak is not reported.
        room: Bytes that are still free, if known: a bounded holder that needs more never reaches its bound.
        allocated_growth: Bytes by which the device's own memory has grown in the same steps, if known: where the host's
            grows beside an accelerator, what holds tensors on the latter must make both grow.
        looked_before: How often evidence of the same growth has left it open.
        working_sets: Names of holders that earlier evidence has seen to let go what they held.
    """
    case = _Case(suspicion, evidence, min_rate, room, allocated_growth, working_sets)
    for decide in (_held, _filling, _garbage, _refilled, _surviving, _workload, _of_history):
        conclusion = decide(case)
        if conclusion is not None:
            return conclusion
    return _without_holder(case, looked_before)


def working_sets(suspicion: Suspicion, evidence: Evidence) -> Iterator[str]:
    """Names of holders that let go what they hold: an episode's state, a list that is emptied, however large."""
    for holder in evidence.holders:
        if holder.is_emptied or _is_released(holder, suspicion, evidence):
            yield holder.name


def _is_released(holder: Holder, suspicion: Suspicion, evidence: Evidence) -> bool:
    """Whether a graph is let go again and again, as an episode's state is.

    It gains many times what memory grows by, or it does not reach back to where the growth began.
    """
    if holder.kind is not HolderKind.GRAPH:
        return False
    lasted = evidence.last_step - suspicion.first_step
    is_young = holder.is_whole and holder.length < _REACHES * lasted * holder.per_step
    is_fast = holder.bytes_per_step >= _RELEASED * max(suspicion.bytes_per_step, 1.0)
    return is_young or (is_fast and suspicion.channel is Channel.ALLOCATED)


class _Case:
    """What the rules look at."""

    def __init__(
        self,
        suspicion: Suspicion,
        evidence: Evidence,
        min_rate: float,
        room: int | None,
        allocated_growth: float | None,
        known_sets: Container[str],
    ) -> None:
        self.suspicion = suspicion
        self.evidence = evidence
        self.rate = max(suspicion.bytes_per_step, 1.0)
        self.min_rate = min_rate
        most = inf
        if suspicion.is_beside_accelerator and allocated_growth is not None:
            on_device = max(allocated_growth, 0.0) / max(suspicion.judged_steps, 1)
            most = _RELEASED * (self.rate + on_device)
        self.sites = [site for site in evidence.sites or () if site.share >= _SURVIVING and site.bytes_per_step < most]
        stacked = [site for site in self.sites if site.stack]
        self.site = max(stacked, key=lambda site: site.bytes_per_step, default=None)
        """The surviving site with lines of the user that keeps most."""
        self.surviving = sum(site.bytes_per_step for site in self.sites)  # bytes per watched step that are still alive
        least = min(min_rate, _EXPLAINED * self.rate)
        self.refilled: list[Holder] = []
        self.bounded: list[Holder] = []
        self.collectable: list[Holder] = []
        self.unbounded: list[Holder] = []
        let_go = set(working_sets(suspicion, evidence))
        for holder in evidence.holders:
            if not least <= holder.bytes_per_step < most:
                continue
            if holder.name in let_go or holder.name in known_sets:
                self.refilled.append(holder)
            elif _reaches_bound(holder, room):
                self.bounded.append(holder)
            elif _is_collectable(holder, evidence):
                self.collectable.append(holder)
            elif not self._is_bystander(holder):
                self.unbounded.append(holder)
        filling = max((holder.bytes_per_step for holder in self.bounded), default=0.0)
        # a batch that is made of what a buffer holds grows until that is full
        self.unbounded = [
            each for each in self.unbounded if each.kind is not HolderKind.TENSOR or each.bytes_per_step >= filling
        ]

    def _is_bystander(self, holder: Holder) -> bool:
        """Whether it only grows along: plain objects that explain little, while tensors survive."""
        is_plain = holder.contents is Contents.OBJECTS or not holder.lines
        return is_plain and holder.bytes_per_step < 0.5 * self.rate and self.surviving >= 0.5 * self.rate

    def is_enough(self, rate: float) -> bool:
        """Whether bytes per step are a good part of the growth, and enough to matter."""
        # beside an accelerator the growth is the host's, while a holder counts its tensors on the device
        grows = self.rate if self.suspicion.channel is Channel.HEAP else max(rate, self.rate)
        return rate >= _EXPLAINED * self.rate and grows >= self.min_rate

    def conclude(
        self,
        outcome: Outcome,
        reason: str,
        cause: str,
        advice: str = "",
        *,
        rate: float | None = None,
        holders: Sequence[Holder] = (),
        site: Site | None = None,
        site_first: bool = False,
        **more: Any,
    ) -> Conclusion:
        """The conclusion that something (``holders``, ``site``) explains so many bytes per step (``rate``)."""
        return Conclusion(
            outcome=outcome,
            step=self.evidence.last_step,
            reason=reason,
            cause=cause,
            advice=advice,
            share=None if rate is None else min(rate / self.rate, 1.0),
            explained=rate,
            evidence=_numbers(self.evidence, holders, site, site_first=site_first),
            **more,
        )

    def end_of(self, holder: Holder) -> int | None:
        """Step at which a bounded holder is full."""
        return None if holder.steps_left is None else self.evidence.last_step + holder.steps_left


def _reaches_bound(holder: Holder, room: int | None) -> bool:
    if holder.bound is None or room is None:
        return holder.bound is not None
    return max(holder.bound - holder.length, 0) * holder.bytes_per_element < room


def _is_collectable(holder: Holder, evidence: Evidence) -> bool:
    """What the collector frees when its turn comes; it does not see cycles that run through C++ (create_graph)."""
    by_python = holder.kind is HolderKind.CONTEXT and holder.type != "create_graph"
    return evidence.collector_on and (holder.kind is HolderKind.GARBAGE or by_python)


def _is_useless(holder: Holder) -> bool:
    """A cache that keeps things and was never hit: it only holds memory, until it is full and after."""
    return holder.kind is HolderKind.LRU_CACHE and holder.hits == 0 and holder.length >= _MISSES


def _rate_of(holders: Sequence[Holder]) -> float:
    return sum(holder.bytes_per_step for holder in holders)


def _largest(holders: Sequence[Holder]) -> Holder:
    return max(holders, key=lambda holder: holder.bytes_per_step)


def _held(case: _Case) -> Conclusion | None:
    """Something without a bound, or a cache of no use, keeps what grows."""
    useless = [holder for holder in case.bounded if _is_useless(holder)]
    holders = case.unbounded + useless
    if not holders or not case.is_enough(_rate_of(holders)):
        return None
    top = _largest(holders)
    known = [holder for holder in holders if holder is not top and holder.contents is not Contents.OBJECTS]
    others = [holder for holder in known if holder.bytes_per_step >= 0.2 * top.bytes_per_step]
    return case.conclude(
        Outcome.CONFIRMED,
        leak_text.held_by(top, others, case.evidence.last_step),
        leak_text.cause_of(top),
        leak_text.advice_for_all((top, *others), on_accelerator=case.suspicion.is_of_accelerator),
        rate=_rate_of((top, *others)),
        holders=(top, *others),
        site=case.site,
        ends_at=case.end_of(top),
        lasting=top in useless,
    )


def _filling(case: _Case) -> Conclusion | None:
    """Everything that grows is bounded: it will stop by itself."""
    rate = _rate_of(case.bounded)
    if not case.bounded or not case.is_enough(rate):
        return None
    reason = leak_text.fills_up(_largest(case.bounded), case.evidence.last_step)
    ends_at = max(filter(None, map(case.end_of, case.bounded)), default=None)
    cause = "a bounded container that fills"
    room = sum(max((holder.bound or 0) - holder.length, 0) * holder.bytes_per_element for holder in case.bounded)
    conclusion = case.conclude(Outcome.DISMISSED, reason, cause, rate=rate, holders=case.bounded)
    return replace(conclusion, ends_at=ends_at, room=round(room))


def _garbage(case: _Case) -> Conclusion | None:
    """Cycles that the collector frees when its turn comes: wait for it."""
    if not case.collectable or not case.is_enough(_rate_of(case.collectable)):
        return None
    top = _largest(case.collectable)
    reason = f"{leak_text.held_by(top, [], case.evidence.last_step)}: the garbage collector frees it at its next run"
    cause, advice = leak_text.cause_of(top), leak_text.advice_for(top, on_accelerator=case.suspicion.is_of_accelerator)
    return case.conclude(Outcome.OPEN, reason, cause, advice, rate=top.bytes_per_step, holders=(top,), site=case.site)


def _refilled(case: _Case) -> Conclusion | None:
    """What grows keeps nothing from one step to the next: the steps need more."""
    rate = _rate_of(case.refilled)
    if not case.refilled or not case.is_enough(rate):
        return None
    top = _largest(case.refilled)
    reason = f"the steps need more memory: {leak_text.refilled(top, case.evidence.last_step)}"
    conclusion = case.conclude(Outcome.DISMISSED, reason, "a workload that grows", rate=rate, holders=case.refilled)
    return replace(conclusion, is_working_set=True)


def _surviving(case: _Case) -> Conclusion | None:
    """No holder is known, but what was allocated in every watched step is still alive."""
    if not case.sites or case.bounded or not case.is_enough(case.surviving):
        return None
    # a site in the user's own lines before one without, then the one that keeps most
    top = max(case.sites, key=lambda site: (bool(site.stack), site.bytes_per_step))
    beside = [holder for holder in case.evidence.holders if holder.bound is None and holder.lines]
    return case.conclude(
        Outcome.CONFIRMED,
        leak_text.survives(top, beside),
        leak_text.cause_of_site(top),
        leak_text.ADVICE_FOR_SITES,
        rate=case.surviving,
        holders=beside[:_BESIDE],
        site=top,
        site_first=True,
    )


def _workload(case: _Case) -> Conclusion | None:
    """Nothing allocated before the last step is alive: each step simply needs more."""
    evidence, sites = case.evidence, case.evidence.sites
    if sites is None or evidence.sizes_grow < _CURRICULUM or case.suspicion.gap > evidence.watched_steps:
        return None
    if any(site.share > _SHORT_LIVED and site.bytes_per_step >= _EXPLAINED * case.rate for site in sites):
        return None
    reason = "the steps need more memory: what is alive was allocated in the last step, and most sizes grow"
    return case.conclude(Outcome.DISMISSED, reason, "a workload that grows")


def _of_history(case: _Case) -> Conclusion | None:
    """Torch's memory history is recorded: each event takes memory of the host until the ring buffer is full."""
    room = case.evidence.history_bytes - case.suspicion.growth
    if case.suspicion.channel not in (Channel.HOST, Channel.HEAP) or room <= 0:
        return None
    reason = "torch's memory history, which is recorded, keeps each event until its buffer is full"
    full = case.evidence.last_step + round(room / case.rate)
    return case.conclude(Outcome.DISMISSED, reason, "memory outside of torch", ends_at=full, room=round(room))


def _without_holder(case: _Case, looked_before: int) -> Conclusion:
    is_large = case.rate >= case.min_rate and case.suspicion.growth >= _OUT_OF_SIGHT
    outcome, advice = Outcome.OPEN, leak_text.ADVICE_OUT_OF_SIGHT
    gap, watched = case.suspicion.gap, case.evidence.watched_steps
    lacks_survivors = False
    if case.evidence.search_seconds and not case.evidence.holders:
        reason = leak_text.search_cut_short(case.evidence.search_seconds)
        advice = leak_text.advice_on_search(case.evidence.search_seconds)
    elif gap > 1 and watched < _RISES * gap:
        reason = f"{leak_text.grows_rarely(gap)}, too few of them among the {watched} that were watched"
        advice = leak_text.advice_on_rare_growth(_AS_LONG * gap)
    elif case.evidence.sites is not None:
        reason = "neither Python nor torch holds it: heap memory without tensors, such as that of a C extension"
        outcome = Outcome.CONFIRMED if looked_before > 0 and is_large else Outcome.OPEN
    else:
        reason, lacks_survivors = "no Python object that holds it was found, and survivors could not be recorded", True
    along = _growing_along(case)
    reasons = [reason, *(leak_text.grows_along(each, case.rate, case.evidence.last_step) for each in along)]
    conclusion = case.conclude(outcome, " · ".join(reasons), "memory outside of torch", advice, holders=along)
    # the lines of what grows along are a place to begin at, but the holder is out of sight
    return replace(
        conclusion, evidence={**conclusion.evidence, "holder": None, "line": None}, lacks_survivors=lacks_survivors
    )


def _growing_along(case: _Case) -> Sequence[Holder]:
    """The largest of what grows with the steps, if it explains a part: its elements may hold more than can be seen.

    The buffer of an ``io.StringIO``, such as that of a log handler, has no size in Python.
    """
    known = [each for each in case.evidence.holders if each.lines and each.bound is None and each not in case.refilled]
    largest = sorted(known, key=lambda holder: -holder.bytes_per_step)[:1]
    return [each for each in largest if each.bytes_per_step >= _ALONG * case.rate]


def _numbers(
    evidence: Evidence, holders: Sequence[Holder], site: Site | None, *, site_first: bool = False
) -> dict[str, Any]:
    """The finding's evidence as plain JSON values, the best line first."""
    lines = [line for holder in holders for line in holder.lines]
    known_by = [f"{holder.name}: {leak_text.KNOWN_BY[holder.known_by]}" for holder in holders if holder.lines]
    if site is not None:
        stack = list(site.stack)
        lines = stack + [line for line in lines if line not in stack] if site_first else lines + stack
        known_by.append(
            f"survivors: what {site.generations} of {site.steps} watched steps allocated there is still alive"
        )
    return {
        "holder": holders[0].name if holders and not site_first else None,
        "holders": [leak_text.as_dict(holder) for holder in holders],
        "line": asdict(lines[0]) if lines else None,
        "lines": [asdict(line) for line in dict.fromkeys(lines)],
        "site": leak_text.site_as_dict(site) if site is not None else None,
        "known_by": "; ".join(known_by),
        "watched_steps": [evidence.first_step, evidence.last_step],
        "notes": list(evidence.notes),
    }
