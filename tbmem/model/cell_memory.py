"""CellMemory: memory before, during and after a piece of a program, such as a notebook's cell."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tbmem.model.html_display import HtmlDisplay
from tbmem.model.oom import OomHolder
from tbmem.units import format_bytes, format_duration, format_signed

_MOST_KEPT = 3  # holders that its text names


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLevels:
    """Levels of one device, in bytes."""

    device: str
    before: int | None
    """Allocated before the cell; ``None`` where it is unknown, or the device was not in use."""
    after: int | None
    peak: int | None
    """The highest level in the cell; on the CPU the resident memory's."""
    counter: str = "peak_allocated"
    """The field of ``MemorySample`` that the peak was read from."""
    total: int | None = None
    run_peak: int | None = None
    """The peak of a run in the cell, which is that of its steps; ``None`` without a run."""

    @property
    def change(self) -> int | None:
        """Bytes allocated in the cell and not freed."""
        return None if self.before is None or self.after is None else self.after - self.before

    def __repr__(self) -> str:
        figures = (("peak", self.peak, format_bytes), ("change", self.change, format_signed))
        known = [f"{name} {text(value)}" for name, value, text in figures if value is not None]
        return f"{self.device}: {', '.join(known) or 'no counters'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMemory(HtmlDisplay):
    """Memory of a notebook's cell."""

    seconds: float
    """Duration of the cell."""
    levels: tuple[CellLevels, ...]
    kept: tuple[OomHolder, ...] = ()
    """What holds more memory after the cell than before, with the difference in bytes; the largest first."""
    exception: str | None = None
    """Class of the exception that ended the cell."""

    def __repr__(self) -> str:
        lines = [f"Memory of a cell in {format_duration(self.seconds)}", *(f"  {one!r}" for one in self.levels)]
        kept = [f"{holder.name} {format_signed(holder.bytes)}" for holder in self.kept[:_MOST_KEPT]]
        more = [f"{len(self.kept) - _MOST_KEPT} more"] * (len(self.kept) > _MOST_KEPT)
        return "\n".join([*lines, *([f"  kept: {', '.join(kept + more)}"] if kept else [])])

    def reaching(self, device: str, peak: int) -> CellMemory:
        """The same with a peak of a device that a run in the cell has seen: two readings may differ by some pages."""
        levels = [one if one.device != device else _reaching(one, peak) for one in self.levels]
        return replace(self, levels=tuple(levels))


def _reaching(levels: CellLevels, peak: int) -> CellLevels:
    return replace(levels, peak=max(peak, levels.peak or 0), run_peak=max(peak, levels.run_peak or 0))
