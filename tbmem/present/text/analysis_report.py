"""The text of ``analysis_report.txt``: all figures of an analysis, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tbmem.analysis.recordings.result import Allocation, Analysis, DeviceAnalysis, ModuleShare, Share
from tbmem.model.category import word_of
from tbmem.present.lines import device_label
from tbmem.present.text.analysis_tables import peak_line
from tbmem.units import format_bytes

_WIDTH = 100
_SHARES = 25
_DEPTH = 4
_LEAST_PERCENT = 0.5
_FRAMES = 12
_GRADES = "excellent above 98 %, good from 95 %, poor below"
_NOT_KNOWN = "not known: no peak was recorded, or not how much was reserved"


def report_text(analysis: Analysis, written: str = "") -> str:
    """The report."""
    lines = ["MEMORY ANALYSIS REPORT", "=" * _WIDTH]
    about = (("recording", analysis.name), ("kind", analysis.source), ("file", analysis.path), ("written", written))
    lines += [f"{word:<12}{text}" for word, text in about if text]
    for device in sorted(analysis.devices, key=lambda one: -one.peak.bytes):
        lines += _device(device)
    if analysis.notes:
        lines += _section("NOT KNOWN") + [f"- {note}" for note in analysis.notes]
    return "\n".join(lines) + "\n"


def _device(device: DeviceAnalysis) -> list[str]:
    title = " ".join(filter(None, (device_label(device.name), f"({device.model})" * bool(device.model))))
    lines = ["", "", f"DEVICE {title}", "=" * _WIDTH, peak_line(device)]
    lines += _section("MEMORY EFFICIENCY") + _efficiency(device)
    lines += _section("BREAKDOWN BY CATEGORY, AT THE PEAK") + _categories(device.by_category)
    lines += _section(f"TOP {len(device.top)} ALLOCATIONS BY SIZE, AT THE PEAK") + _top(device.top)
    lines += _section("FRAGMENTATION") + _fragmentation(device)
    for title, shares in (("PHASE", device.by_phase), ("LINE", device.by_line), ("OPERATOR", device.by_operator)):
        if [share for share in shares if share.bytes and not share.name.startswith("(")]:
            words = word_of if title == "PHASE" else str
            lines += _section(f"BREAKDOWN BY {title}, AT THE PEAK") + _shares(shares, words)
    if [share for share in device.by_module if share.bytes and not share.name.startswith("(")]:
        lines += _section("MODULES, AT THE PEAK") + list(_modules(device.modules))
        lines += _section("MODULES, REPEATED LAYERS TOGETHER") + _shares(device.by_module)
    if device.lifetimes:
        lines += _section("LIFETIMES") + [
            f"{one.name:<24}{one.count:>10,} allocations {_size(one.bytes)}   at the peak {_size(one.peak_bytes)}"
            for one in device.lifetimes
        ]
    lines += _section("SUSPECTED LEAKS") + (list(_suspects(device)) or ["none"])
    lines += _section("RECOMMENDATIONS")
    return lines + (list(_recommendations(device)) or ["none"])


def _section(title: str) -> list[str]:
    return ["", title, "-" * _WIDTH]


def _size(count: int | None) -> str:
    """``'   1.50 GiB  (       1,610,612,736 B)'``."""
    return f"{'not known':>14}" if count is None else f"{format_bytes(count):>12}  ({count:>17,} B)"


def _rows(figures: Iterable[tuple[str, int | None]]) -> list[str]:
    return [f"{word:<40}{_size(count)}" for word, count in figures]


def _efficiency(device: DeviceAnalysis) -> list[str]:
    percent = device.efficiency_percent
    known = _NOT_KNOWN if percent is None else f"{percent:.3f} %"
    grade = "" if percent is None else f"   {device.grade} ({_GRADES})"
    figures = [
        ("peak", device.peak.bytes),
        ("peak of reserved memory", device.peak_reserved_bytes),
        ("of it not in use even at the peak", device.never_used_bytes),
        ("reserved at the end", device.reserved_bytes),
        ("allocated at the end", device.allocated_bytes),
        ("active at the end", device.active_bytes),
        ("requested at the end", device.requested_bytes),
        ("there before the recording", device.base_bytes),
        ("memory of the device", device.total_bytes),
    ]
    counts = (
        f"{device.events:,} events, {device.unmatched_frees:,} frees of older blocks, {device.ooms:,} out of memory"
    )
    return [f"efficiency at the peak: {known}{grade}", *_rows(figures), counts, f"sizes count {device.measure} bytes"]


def _categories(shares: Sequence[Share]) -> list[str]:
    lines = []
    for one in shares:
        basis = {"known": "known", "inferred": "inferred", "mixed": "known and inferred"}.get(one.basis, "")
        most = "" if one.max_bytes is None else f"   most {format_bytes(one.max_bytes):>12}"
        lines.append(
            f"{word_of(one.name):<20}{_size(one.bytes)} {one.percent:>6.2f} %{one.count:>9,} x{most}   {basis}".rstrip()
        )
    return lines or ["nothing was alive"]


def _shares(shares: Sequence[Share], words: Callable[[str], str] = str) -> list[str]:
    return [
        f"{_size(one.bytes)} {one.percent:>6.2f} %{one.count:>9,} x   {words(one.name) or '(none)'}"
        for one in shares[:_SHARES]
        if one.bytes
    ]


def _top(top: Sequence[Allocation]) -> list[str]:
    lines = []
    for number, one in enumerate(top, 1):
        step = f"step {one.step}" if one.step >= 0 else ""
        words = (
            word_of(one.category) + f" ({one.basis})" * (one.basis == "inferred"),
            one.name,
            one.module,
            one.operator,
            step,
        )
        lines.append(f"{number:>3}. {_size(one.bytes)}   {' · '.join(dict.fromkeys(filter(None, words)))}")
        if one.line:
            lines.append(f"{'':10}{one.line}")
        lines += _stack(one.stack)
    return lines or ["nothing was alive"]


def _stack(stack: Sequence[str]) -> list[str]:
    """Frames, indented: Python's only, where there are any."""
    frames = python_frames(stack)
    more = [f"{'':14}… {len(frames) - _FRAMES} more"] if len(frames) > _FRAMES else []
    return [f"{'':14}{frame[:_WIDTH]}" for frame in frames[:_FRAMES]] + more


def python_frames(stack: Sequence[str]) -> Sequence[str]:
    """Frames of Python's code; all of them if none is. Dozens of torch's own C++ frames say little."""
    return [frame for frame in stack if ".py:" in frame] or stack


def _fragmentation(device: DeviceAnalysis) -> list[str]:
    free = device.fragmentation
    figures = [
        ("free at the end", free.free_bytes),
        ("  cached: in whole segments and pages", free.cached_bytes),
        ("  fragmented: between used blocks", free.fragmented_bytes),
        ("lost to rounding", free.rounding_loss_bytes),
        ("waiting for another stream", free.pending_free_bytes),
        ("largest free block", free.largest_free_block_bytes),
        ("largest gap", free.largest_gap_bytes),
    ]
    lines = _rows(figures)
    if free.gaps is not None and free.fragmented_percent is not None:
        lines.append(f"{free.gaps:,} gaps, {free.fragmented_percent:.2f} % of reserved memory fragmented")
    if free.failing_request_bytes is not None:
        lines += _rows([("last request that failed", free.failing_request_bytes)])
        if free.failing_request_fits_free_sum is not None:
            enough = "all free blocks together would have been enough"
            lines.append(enough if free.failing_request_fits_free_sum else "more than all free blocks together")
    return lines


def _modules(root: ModuleShare) -> Iterable[str]:
    pending = [(child, 0) for child in reversed(root.children)]
    while pending:
        one, depth = pending.pop()
        yield f"{_size(one.bytes)} {one.percent:>6.2f} %{one.count:>9,} x   {'  ' * depth}{one.name}"
        if depth + 1 < _DEPTH:
            pending += [(child, depth + 1) for child in reversed(one.children) if child.percent >= _LEAST_PERCENT]


def _suspects(device: DeviceAnalysis) -> Iterable[str]:
    for one in device.suspects:
        yield f"- {one.message}"
        yield from _stack(one.stack)


def _recommendations(device: DeviceAnalysis) -> Iterable[str]:
    for one in device.recommendations:
        yield f"- {one.message}"
        yield f"  change: {one.setting}"
        yield f"  because: {_trigger(one.trigger)} {one.value:,.10g}, limit {one.limit:,.10g}"


def _trigger(figure: str) -> str:
    """``'by_category.OPTIMIZER_STATE'`` as ``'Optimizer state'``, ``'fragmented_bytes'`` as ``'fragmented bytes'``."""
    return word_of(figure.removeprefix("by_category.")).replace("_", " ")
