"""Finding: a conclusion about a run with its numbers and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, TypedDict

import msgspec

from tbmem.model.html_display import HtmlDisplay
from tbmem.model.json_values import Count, Number

Facts = Mapping[str, Any]
"""Numbers with their unit in the key (``bytes_per_step``), source lines, holders: plain JSON values."""


class _ReadFacts(TypedDict, total=False):
    """Facts that screens compute with; the others are shown as they are."""

    channel: str | None
    holder: str | None
    bytes_per_step: Number | None
    growth_bytes: Number | None
    period_steps: Count | None
    member_steps: list[Count] | None
    steps_left: Count | None
    steps_left_low: Count | None
    steps_left_high: Count | None
    seconds_left: Number | None
    files: list[str] | None


EVALUATION_LABEL = "EVALUATION"


class FindingKind(str, Enum):
    """Kind of a finding."""

    LEAK = "leak"
    SUSPECT = "suspect"
    """Growth that may be a leak; logged, not shown."""
    DISMISSED = "dismissed"
    """A suspicion that the evidence has cleared; logged with the reason."""
    GROWING = "growing"
    """Growth caused by the workload itself: a curriculum, unfreezing, a cache that fills."""
    PERIODIC = "periodic"
    """Memory that rises and falls periodically: validation, checkpoints, epochs."""
    FRAGMENTATION = "fragmentation"
    SPIKE = "spike"
    LEVEL_SHIFT = "level_shift"
    STABLE = "stable"
    NEAR_CAPACITY = "near_capacity"
    OOM = "oom"
    SHORT_RUN = "short_run"
    WARMUP = "warmup"

    def __str__(self) -> str:
        return self.value

    @property
    def is_quiet(self) -> bool:
        """Whether it goes into the live log only: a suspicion is not reported before there is evidence."""
        return self in (FindingKind.SUSPECT, FindingKind.DISMISSED)

    @property
    def label(self) -> str:
        """The kind as the console writes it: ``'NEAR CAPACITY'``."""
        return self.value.replace("_", " ").upper()


class Severity(str, Enum):
    """How urgent a finding is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(HtmlDisplay):
    """One conclusion, ready to be printed, logged and drawn."""

    kind: FindingKind
    severity: Severity
    device: str
    rank: Count = 0
    first_step: Count
    last_step: Count
    message: str
    evidence: Facts = field(default_factory=dict)
    """The numbers behind the message, and how a named cause is known."""
    advice: str = ""

    @property
    def label(self) -> str:
        """Its kind as every screen writes it; a spike that is information is that of an evaluation."""
        is_evaluation = self.kind is FindingKind.SPIKE and self.severity is Severity.INFO
        return EVALUATION_LABEL if is_evaluation else self.kind.label

    @property
    def subject(self) -> tuple[object, ...]:
        """What reports of the same have in common: a leak or a period is reported again when more is known about it.

        What a holder on the CPU keeps shows in malloc's memory and in the resident memory.
        """
        holder, channel = self.evidence.get("holder"), self.evidence.get("channel")
        is_same_memory = holder is not None and self.device == "cpu"
        period = self.evidence.get("period_steps")
        return self.kind, self.rank, self.device, None if is_same_memory else channel, holder, period

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON values."""
        return {**asdict(self), "kind": self.kind.value, "severity": self.severity.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finding:
        """The finding that ``to_dict`` returned; ValueError if it is damaged, unknown keys are ignored."""
        finding = msgspec.convert(data, cls)
        msgspec.convert(finding.evidence, _ReadFacts)
        return finding


class Findings(HtmlDisplay, tuple[Finding, ...]):
    """Several findings, which a notebook displays as a list."""

    __slots__ = ()


class FindingList(HtmlDisplay, list[Finding]):
    """The findings of a run that is going on; a notebook displays those that there are."""
