"""A detector that suspects what it is told to."""

from __future__ import annotations

from tbmem.model.evidence import Conclusion, Suspicion
from tbmem.model.finding import Finding


class FakeDetector:
    """Holds suspicions and remembers what was concluded."""

    def __init__(self, *suspicions: Suspicion) -> None:
        self.suspicions = suspicions
        self.concluded: list[Conclusion] = []
        self.let_go: dict[str, int] = {}
        self.growth = 0
        """Bytes by which memory has grown by now, if more than when it was suspected."""
        self.rate: float | None = None
        """Bytes per step by which memory grows when conclusions are handed over; else as when it was suspected."""

    def allocated_growth(self, suspicion: Suspicion) -> float | None:
        return None

    def growth_by_now(self, suspicion: Suspicion) -> float:
        return max(self.growth, suspicion.growth)

    def lasting_rate(self, suspicion: Suspicion) -> float:
        return suspicion.bytes_per_step if self.rate is None else self.rate

    def conclude(self, suspicion: Suspicion, conclusion: Conclusion) -> list[Finding]:
        self.suspicions = ()
        self.concluded.append(conclusion)
        return []
