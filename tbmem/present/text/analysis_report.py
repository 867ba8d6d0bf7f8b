"""The text of ``analysis_report.txt``: all figures of an analysis, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tbmem.analysis.recordings.fragmentation import EXCELLENT, GOOD
from tbmem.analysis.recordings.result import Allocation, Analysis, DeviceAnalysis, ModuleShare, Share
from tbmem.model.category import word_of
from tbmem.present.lines import device_label, note_line
from tbmem.present.text.analysis_tables import named_shares, peak_line
from tbmem.present.text.step_lines import step_lines
from tbmem.units import format_bytes

_WIDTH = 100
_SHARES = 25
_DEPTH = 4
_LEAST_PERCENT = 0.5
_FRAMES = 12
_GRADES = f"excellent above {EXCELLENT:g} %, good from {GOOD:g} %, poor below"
_NOT_KNOWN = "not known: no peak was recorded, or not how much was reserved"


def report_text(analysis: Analysis, written: str = "") -> str:
    """The report."""
    lines = ["MEMORY ANALYSIS REPORT", "=" * _WIDTH]
    about = (("recording", analysis.name), ("kind", analysis.source), ("file", analysis.path), ("written", written))
    lines += [f"{word:<12}{text}" for word, text in about if text]
    for device in sorted(analysis.devices, key=lambda device: -device.peak.bytes):
        lines += _device(device)
    if analysis.notes:
        lines += _section("NOT KNOWN") + [f"- {note_line(note)}" for note in analysis.notes]
    return "\n".join(lines) + "\n"


def _device(device: DeviceAnalysis) -> list[str]:
    title = " ".join(filter(None, (device_label(device.name), f"({device.model})" * bool(device.model))))
    lines = ["", "", f"DEVICE {title}", "=" * _WIDTH, peak_line(device)]
    lines += _section("MEMORY EFFICIENCY") + _efficiency(device)
    lines += _section("BREAKDOWN BY CATEGORY, AT THE PEAK") + _categories(device.by_category)
    lines += _section(f"TOP {len(device.top)} ALLOCATIONS BY SIZE, AT THE PEAK") + _top(device.top)
    lines += _section("FRAGMENTATION") + _fragmentation(device)
    for title, shares in (("PHASE", device.by_phase), ("LINE", device.by_line), ("OPERATOR", device.by_operator)):
        if named_shares(shares):
            words = word_of if title == "PHASE" else str
            lines += _section(f"BREAKDOWN BY {title}, AT THE PEAK") + _shares(shares, words)
    if named_shares(device.by_module):
        lines += _section("MODULES, AT THE PEAK") + list(_modules(device.modules))
        lines += _section("MODULES, REPEATED LAYERS TOGETHER") + _shares(device.by_module)
    if device.steps:
        lines += _section("STEPS") + step_lines(device.steps)
    if device.lifetimes:
        lines += _section("LIFETIMES") + [
            f"{group.name:<24}{group.count:>10,} allocations {_size(group.bytes)}"
            f"   at the peak {_size(group.peak_bytes)}"
            for group in device.lifetimes
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
    counts = f"{device.events:,} events, {device.unmatched_frees:,} frees of older blocks"
    counts += f", {device.ooms:,} out of memory"
    return [f"efficiency at the peak: {known}{grade}", *_rows(figures), counts, f"sizes count {device.measure} bytes"]


def _categories(shares: Sequence[Share]) -> list[str]:
    lines = []
    for share in shares:
        basis = {"known": "known", "inferred": "inferred", "mixed": "known and inferred"}.get(share.basis, "")
        most = "" if share.max_bytes is None else f"   most {format_bytes(share.max_bytes):>12}"
        lines.append(
            f"{word_of(share.name):<20}{_size(share.bytes)} {share.percent:>6.2f} %{share.count:>9,} x"
            f"{most}   {basis}".rstrip()
        )
    return lines or ["nothing was alive"]


def _shares(shares: Sequence[Share], words: Callable[[str], str] = str) -> list[str]:
    return [
        f"{_size(share.bytes)} {share.percent:>6.2f} %{share.count:>9,} x   {words(share.name) or '(none)'}"
        for share in shares[:_SHARES]
        if share.bytes
    ]


def _top(top: Sequence[Allocation]) -> list[str]:
    lines = []
    for number, allocation in enumerate(top, 1):
        step = f"step {allocation.step}" if allocation.step >= 0 else ""
        category = word_of(allocation.category) + f" ({allocation.basis})" * (allocation.basis == "inferred")
        words = (category, allocation.name, allocation.module, allocation.operator, step)
        lines.append(f"{number:>3}. {_size(allocation.bytes)}   {' · '.join(dict.fromkeys(filter(None, words)))}")
        if allocation.line:
            lines.append(f"{'':10}{allocation.line}")
        lines += _stack(allocation.stack)
    return lines or ["nothing was alive"]


def _stack(stack: Sequence[str]) -> list[str]:
    """Frames, indented: Python's only, where there are any."""
    frames = [frame for frame in stack if ".py:" in frame] or stack
    more = [f"{'':14}… {len(frames) - _FRAMES} more"] if len(frames) > _FRAMES else []
    return [f"{'':14}{frame[:_WIDTH]}" for frame in frames[:_FRAMES]] + more


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
        module, depth = pending.pop()
        yield f"{_size(module.bytes)} {module.percent:>6.2f} %{module.count:>9,} x   {'  ' * depth}{module.name}"
        if depth + 1 < _DEPTH:
            pending += [(child, depth + 1) for child in reversed(module.children) if child.percent >= _LEAST_PERCENT]


def _suspects(device: DeviceAnalysis) -> Iterable[str]:
    for suspect in device.suspects:
        yield f"- {suspect.message}"
        yield from _stack(suspect.stack)


def _recommendations(device: DeviceAnalysis) -> Iterable[str]:
    for advice in device.recommendations:
        yield f"- {advice.message}"
        yield f"  change: {advice.setting}"
        # 'by_category.OPTIMIZER_STATE' as 'Optimizer state', 'fragmented_bytes' as 'fragmented bytes'
        figure = word_of(advice.trigger.removeprefix("by_category.")).replace("_", " ")
        yield f"  because: {figure} {advice.value:,.10g}, limit {advice.limit:,.10g}"
