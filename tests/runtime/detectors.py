"""A detector that suspects what it is told to."""

from __future__ import annotations

from tbmem.model.evidence import Conclusion, Suspicion
from tbmem.model.finding import Finding


class FakeDetector:
    """Holds suspicions and remembers what was concluded."""

    def __init__(self, *suspicions: Suspicion) -> None:
        self.suspicions = suspicions
        self.concluded: list[Conclusion] = []

    def conclude(self, suspicion: Suspicion, conclusion: Conclusion) -> list[Finding]:
        self.suspicions = ()
        self.concluded.append(conclusion)
        return []
