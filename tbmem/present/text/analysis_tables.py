"""Analyses and comparisons as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from io import StringIO
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tbmem.analysis.recordings.fragmentation import EXCELLENT, GOOD
from tbmem.analysis.recordings.result import Allocation, Analysis, DeviceAnalysis, Share
from tbmem.analysis.runs.comparison import FIGURE_WORDS, Change, Comparison, DeviceComparison, OddOne
from tbmem.model.category import Phase, word_of
from tbmem.present.labels import shortened
from tbmem.present.lines import SEPARATOR, device_label, note_line
from tbmem.present.text.comparison_headline import headline
from tbmem.present.text.step_lines import step_lines
from tbmem.units import format_bytes, format_share, format_signed

_TOP = 10
_ROWS = 12
_BAR = 24
_GRADE_WORDS = {"good": f"good; excellent is above {EXCELLENT:g} %", "poor": f"poor; good is from {GOOD:g} %"}
"""Grades of the allocator's efficiency with what the better one takes."""


def analysis_screen(analysis: Analysis) -> RenderableType:
    """The summary of device analysis: peak and where, categories, the largest allocations, findings."""
    heading = SEPARATOR.join(filter(None, (analysis.name, analysis.source, analysis.path)))
    shown = analysis.shown
    parts: list[RenderableType] = [Text(heading, style="bold"), *map(_device_screen, shown)]
    hidden = [device for device in analysis.devices if device not in shown]
    if hidden:
        sizes = ", ".join(f"{device_label(device.name)} {format_bytes(device.peak.bytes)}" for device in hidden)
        parts.append(Text(f"negligible: {sizes}", style="dim"))
    if analysis.notes:
        parts.append(_list("Not known", map(note_line, analysis.notes), "dim"))
    return Group(*parts)


def _device_screen(device: DeviceAnalysis) -> RenderableType:
    parts: list[RenderableType] = [Text(), Text(peak_line(device), style="bold"), *map(Text, _state_lines(device))]
    parts.append(_categories(device.by_category))
    if phases := _phases(device):
        parts.append(Text(phases))
    if device.steps:
        parts.append(Text("\n".join(["Steps, on the host's clock:", *step_lines(device.steps, _TOP)]), no_wrap=True))
    if named_shares(device.by_line):
        parts.append(_lines([share for share in device.by_line if share.bytes]))
    parts.append(_largest(device.top))
    findings = [f"{advice.message} → {advice.setting}" for advice in device.recommendations]
    parts.append(_list("Findings", findings, "") if findings else Text("Findings: none"))
    return Group(*parts)


def peak_line(device: DeviceAnalysis) -> str:
    """``'GPU 0 peak 11.57 GiB of requested bytes · step 3, backward pass, event 7 of 900 · model.py:41 forward'``."""
    peak, total = device.peak, device.total_bytes
    share = f" ({format_share(peak.bytes, total)})" if total else ""
    if peak.event < 0:
        when = "at the beginning of what was recorded"
    else:
        when = f"event {peak.event} of {device.events}"
        step = f"step {peak.step}" if peak.step >= 0 else ""
        phase = "" if peak.phase == Phase.OTHER.name else word_of(peak.phase)
        when = ", ".join(filter(None, (step, phase, when)))
    # what the state at the end calls allocated has the allocator's rounding, so that it may be larger than this peak
    height = f"peak {format_bytes(peak.bytes)} of {device.measure} bytes{share}"
    parts = [f"{device_label(device.name)} {height}", when, peak.line]
    return SEPARATOR.join(filter(None, parts))


def named_shares(shares: Sequence[Share]) -> list[Share]:
    """Shares with bytes and a name; ``'(no stack)'`` and the like are none."""
    return [share for share in shares if share.bytes and not share.name.startswith("(")]


def _state_lines(device: DeviceAnalysis) -> list[str]:
    free = device.fragmentation
    waiting = free.pending_free_bytes or None
    state = {
        "reserved": device.reserved_bytes,
        "allocated": device.allocated_bytes,
        "freed, but waiting for another stream": waiting,
        "requested of both" if waiting else "requested": device.requested_bytes,
    }
    share = "" if free.fragmented_percent is None else f" ({free.fragmented_percent:.1f} % of reserved)"
    unused = {
        "free": free.free_bytes,
        "cached": free.cached_bytes,
        "fragmented": free.fragmented_bytes,
        "lost to rounding": free.rounding_loss_bytes,
        "largest free block": free.largest_free_block_bytes,
    }
    lines = [f"allocator: {used}"] if (used := efficiency_words(device)) else []
    for title, sizes in (("at the end", state), ("unused then", unused)):
        known = [f"{word} {format_bytes(value)}" for word, value in sizes.items() if value is not None]
        known = [text + share * text.startswith("fragmented") for text in known]
        lines += [f"{title}: {SEPARATOR.join(known)}"] if known else []
    return [*lines, failed_sentence(device)] if device.ooms else lines


def efficiency_words(device: DeviceAnalysis) -> str:
    """``'98.2 % of the 11.79 GiB reserved at most were in use at the peak (excellent)'``; empty if not known."""
    if device.efficiency_percent is None or device.peak_reserved_bytes is None:
        return ""
    share = f"{device.efficiency_percent:.1f} % of the {format_bytes(device.peak_reserved_bytes)}"
    return f"{share} reserved at most were in use at the peak ({_GRADE_WORDS.get(device.grade, device.grade)})"


def failed_sentence(device: DeviceAnalysis) -> str:
    """``'1 request failed, out of memory, the last of 40.00 MiB: more than all free blocks together ...'``."""
    free, word = device.fragmentation, "request" if device.ooms == 1 else "requests"
    text = f"{device.ooms} {word} failed, out of memory"
    if free.failing_request_bytes is not None:
        text += f", the last of {format_bytes(free.failing_request_bytes)}"
    if free.failing_request_fits_free_sum is None or free.free_bytes is None:
        return text
    least = "no more than" if free.failing_request_fits_free_sum else "more than"
    return (
        f"{text}: {least} the {format_bytes(free.free_bytes)} that are free in all, where the largest free block has"
        f" {format_bytes(free.largest_free_block_bytes or 0)}"
    )


def _categories(shares: Sequence[Share]) -> RenderableType:
    table = _table("at the peak", "bytes", "%", "", "allocations", "most ever", "at the end", "known by")
    for share in shares[:_ROWS]:
        bar = "█" * max(round(share.percent / 100 * _BAR), 0)
        most = "" if share.max_bytes is None else format_bytes(share.max_bytes)
        basis = {"known": "its name", "inferred": "inference", "mixed": "both"}.get(share.basis, "")
        cells = (f"{share.percent:.1f}", bar, str(share.count), most, format_bytes(share.end_bytes), basis)
        _add(table, word_of(share.name), format_bytes(share.bytes), *cells)
    return _indented(table)


def _phases(device: DeviceAnalysis) -> str:
    shares = [share for share in device.by_phase if share.bytes]
    if len(shares) < 2:
        return ""
    return "at the peak, allocated in: " + SEPARATOR.join(
        f"{word_of(share.name)} {format_bytes(share.bytes)}" for share in shares
    )


def _lines(shares: Sequence[Share]) -> RenderableType:
    table = _table("by line, at the peak", "%", "allocations", "line")
    for share in shares[:_TOP]:
        _add(table, format_bytes(share.bytes), f"{share.percent:.1f}", str(share.count), shortened(share.name))
    return _indented(table)


def _largest(top: Sequence[Allocation]) -> RenderableType:
    table = _table("the largest", "category", "what", "step", "line")
    for allocation in top[:_TOP]:
        what = allocation.name or allocation.module or allocation.operator
        step = str(allocation.step) if allocation.step >= 0 else ""
        size, category = format_bytes(allocation.bytes), word_of(allocation.category)
        _add(table, size, category, shortened(what), step, shortened(allocation.line))
    return _indented(table)


def overview_screen(analyses: Sequence[Analysis], odd: OddOne | None) -> RenderableType:
    """Several recordings side by side, and the outlier."""
    header = ("recording", "device", "peak", "reserved", "used at the peak", "step", "largest category", "suspects")
    rows = [_overview_row(analysis) for analysis in analyses]
    told = [index for index in range(len(header)) if any(row[index] for row in rows)]  # the CPU reserves nothing
    table = _table(*(header[index] for index in told))
    for analysis, row in zip(analyses, rows, strict=True):
        is_odd = odd is not None and odd.name == analysis.name
        _add(table, *(row[index] for index in told), style="bold" if is_odd else "")
    word = odd.message if odd is not None else "None of them stands out." if len(analyses) > 2 else ""
    return Group(_indented(table), Text(word, style="bold" if odd else ""))


def _overview_row(analysis: Analysis) -> tuple[str, ...]:
    device = analysis.main
    step = str(device.peak.step) if device.peak.step >= 0 else ""
    largest = [f"{word_of(share.name)} {format_bytes(share.bytes)}" for share in device.by_category[:1]]
    return (analysis.name, *side_cells(device), step, "".join(largest), str(len(device.suspects) or ""))


def side_cells(device: DeviceAnalysis) -> tuple[str, str, str, str]:
    """Device, peak, reserved at the end and what of it the peak used, for a row of recordings side by side."""
    reserved = "" if device.reserved_bytes is None else format_bytes(device.reserved_bytes)
    percent = "" if device.efficiency_percent is None else f"{device.efficiency_percent:.1f} %"
    return device_label(device.name), format_bytes(device.peak.bytes), reserved, percent


def comparison_screen(comparison: Comparison) -> RenderableType:
    """Changes, device by device."""
    summary = headline(comparison)
    heading = Text(f"{comparison.before} → {comparison.after}\n{summary['label']} · {summary['text']}", style="bold")
    notes = [_list("Note", comparison.notes, "dim")] if comparison.notes else []
    runs = [_changes_screen(device, ", the whole run") for device in comparison.runs]
    return Group(heading, *runs, *map(_changes_screen, comparison.devices), *notes)


def _changes_screen(device: DeviceComparison, what: str = "") -> RenderableType:
    tables = (
        (device_label(device.name) + what, device.totals),
        ("category", device.by_category),
        ("module", device.by_module),
        ("line", device.by_line),
        ("operator", device.by_operator),
    )
    # a breakdown without a single named entry says nothing
    named = [item for item in tables if any(not change.name.startswith("(no ") for change in item[1])]
    return Group(*(_changes(title, changed[:_TOP]) for title, changed in named))


def _changes(title: str, changed: Iterable[Change]) -> RenderableType:
    table = _table(title, "before", "after", "change", "change %")
    for change in changed:
        sizes = (format_bytes(change.before), format_bytes(change.after), format_signed(change.bytes))
        named = word_of(change.name) if title == "category" else FIGURE_WORDS.get(change.name, change.name)
        _add(table, shortened(named, 60), *sizes, change.percent_text)
    return _indented(table)


def _table(first: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold")
    for column in columns:
        words = column in ("", "category", "what", "line", "known by", "device", "largest category")
        table.add_column(column, justify="left" if words else "right", overflow="fold")
    return table


def _add(table: Table, *cells: str, style: str = "") -> None:
    """Add a row as plain text: rich would interpret brackets as markup."""
    table.add_row(*map(Text, cells), style=style)


def _indented(table: Table) -> RenderableType:
    return Group(Text(), table, Text())


def _list(title: str, lines: Iterable[str], style: str) -> RenderableType:
    return Text("\n".join([f"{title}:", *(f"  - {line}" for line in lines)]), style=style)


def analyses_text(analyses: Sequence[Analysis], odd: OddOne | None, width: int = 140) -> str:
    """Screens as plain text: several recordings side by side, and the outlier or the one with the highest peak."""
    console = Console(highlight=False, width=width, no_color=True, file=StringIO())
    with console.capture() as capture:
        for screen in analyses_screens(analyses, odd):
            console.print(screen)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


def analyses_screens(analyses: Sequence[Analysis], odd: OddOne | None) -> Iterator[RenderableType]:
    """Several recordings side by side, and the outlier or the one with the highest peak."""
    outlier = next((analysis for analysis in analyses if odd is not None and analysis.name == odd.name), None)
    if len(analyses) > 1:
        yield overview_screen(analyses, odd)
    yield analysis_screen(outlier or max(analyses, key=lambda analysis: analysis.main.peak.bytes))


def analyses_view(analyses: Sequence[Analysis], odd: OddOne | None) -> dict[str, Any]:
    """What ``--json`` prints: of one recording its analysis, of several all of them and the odd one."""
    if len(analyses) == 1:
        return analyses[0].to_dict()
    return {
        "recordings": {analysis.name: analysis.to_dict() for analysis in analyses},
        "odd_one": None if odd is None else asdict(odd),
    }
