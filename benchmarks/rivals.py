"""What else one could use goes in: rules of thumb and library detectors, each as an object that takes one sample.

Libraries are optional; what is not installed is left out and named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tbmem.model.sample import MemorySample

MIB = 1 << 20
_WARM = 20
"""Samples that every rival leaves out at first: optimizer state appears in them."""


class Rival(Protocol):
    """A detector of leaks."""

    def update(self, sample: MemorySample) -> bool:
        """Take in the next sample; whether it calls a leak."""


class Rises:
    """So many rises of the level in a row."""

    def __init__(self, count: int = 20) -> None:
        self._count, self._run, self._last = count, 0, -1

    def update(self, sample: MemorySample) -> bool:
        """Take in the next sample."""
        level = sample.allocated or 0
        self._run = self._run + 1 if level > self._last else 0
        self._last = level
        return self._run >= self._count


class Ratio:
    """More than a tenth above the level of step ten."""

    def __init__(self, ratio: float = 1.1) -> None:
        self._ratio, self._level = ratio, 0

    def update(self, sample: MemorySample) -> bool:
        """Take in the next sample."""
        level = sample.allocated or 0
        if sample.step == 10:
            self._level = level
        return sample.step > 10 and level > self._ratio * self._level


class Line:
    """A straight line through the last 300 levels that climbs by 4 MiB and explains 80 % of their variance."""

    def __init__(self, window: int = 300) -> None:
        self._levels: deque[int] = deque(maxlen=window)
        self._at = np.arange(window) - (window - 1) / 2
        self._count = 0

    def update(self, sample: MemorySample) -> bool:
        """Take in the next sample; the line is drawn at every tenth."""
        self._levels.append(sample.allocated or 0)
        self._count += 1
        if self._count < _WARM + len(self._at) or self._count % 10:
            return False
        levels = np.array(self._levels, dtype=float)
        levels -= levels.mean()
        slope = float(self._at @ levels / (self._at @ self._at))
        explained = slope * slope * float(self._at @ self._at)
        return slope * len(levels) > 4 * MIB and explained > 0.8 * float(levels @ levels)


class Windowed:
    """A test of a library on the last levels, at every so many steps.

    Args:
        test: Whether an array of levels in bytes is called a leak.
        window: Levels that it is given.
        every: Steps between two tests; the libraries are too slow for every step.
    """

    def __init__(self, test: Callable[[Any], bool], window: int = 300, every: int = 50) -> None:
        self._test, self._every, self._count = test, every, 0
        self._levels: deque[int] = deque(maxlen=window)

    def update(self, sample: MemorySample) -> bool:
        """Take in the next sample."""
        self._count += 1
        if self._count > _WARM:
            self._levels.append(sample.allocated or 0)
        if len(self._levels) < (self._levels.maxlen or 0) or self._count % self._every:
            return False
        return self._test(np.array(self._levels, dtype=float))


class Drift:
    """A drift detector of river on the level in MiB: a leak is a drift upwards."""

    def __init__(self, detector: Any) -> None:
        self._detector, self._count, self._first = detector, 0, 0

    def update(self, sample: MemorySample) -> bool:
        """Take in the next sample."""
        self._count += 1
        level = sample.allocated or 0
        if self._count <= _WARM:
            self._first = level
            return False
        self._detector.update(level / MIB)
        return bool(self._detector.drift_detected) and level > self._first + 4 * MIB


def _climbs_by_scipy(levels: Any) -> bool:
    from scipy import stats

    at = np.arange(len(levels))
    tau = stats.kendalltau(at, levels)
    return bool(tau.statistic > 0 and tau.pvalue < 1e-6) and (
        stats.theilslopes(levels[::3], at[::3])[0] * len(levels) > 4 * MIB
    )


def _climbs_by_mann_kendall(levels: Any) -> bool:
    import pymannkendall

    if levels.min() == levels.max():
        return False
    found = pymannkendall.hamed_rao_modification_test(levels, alpha=1e-6)
    return found.trend == "increasing" and found.slope * len(levels) > 4 * MIB


def _climbs_by_ruptures(levels: Any) -> bool:
    """Whether five change points or more each lead to a higher level."""
    import ruptures

    scale = float(np.abs(np.diff(levels)).mean()) or 1.0
    ends = ruptures.KernelCPD(kernel="linear", min_size=10).fit(levels / scale).predict(pen=50)
    starts = [0, *ends[:-1]]
    means = [levels[start:end].mean() for start, end in zip(starts, ends, strict=True)]
    return len(means) > 5 and all(after > before for before, after in zip(means, means[1:], strict=False))


RULES: dict[str, Callable[[], Rival]] = {
    "20 rises in a row": Rises,
    "a tenth above step 10": Ratio,
    "straight line, 300 steps": Line,
}


def libraries() -> tuple[dict[str, Callable[[], Rival]], list[str]]:
    """Detectors of the libraries that are installed, and the names of those that are not."""
    found: dict[str, Callable[[], Rival]] = {}
    missing = []
    windowed = {
        "scipy": ("Kendall and Theil-Sen", _climbs_by_scipy),
        "pymannkendall": ("Mann-Kendall, Hamed and Rao", _climbs_by_mann_kendall),
        "ruptures": ("KernelCPD", _climbs_by_ruptures),
    }
    for library, (name, test) in windowed.items():
        try:
            __import__(library)
        except ImportError:
            missing.append(library)
            continue
        found[f"{library}: {name}"] = lambda test=test: Windowed(test)  # type: ignore[misc]
    try:
        from river import drift
    except ImportError:
        missing.append("river")
    else:
        found["river: Page-Hinkley"] = lambda: Drift(drift.PageHinkley(mode="up"))
        found["river: ADWIN"] = lambda: Drift(drift.ADWIN())
    return found, missing
