"""An analysis with its rows goes in; ``report.html`` comes out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tbmem.analysis.layers import Layers, layers_of
from tbmem.analysis.report import Allocation, Analysis, DeviceAnalysis, Share
from tbmem.analysis.sizes import sizes_of
from tbmem.model.category import Phase
from tbmem.present.charts import modules_chart, parts_chart, sizes_chart, timeline_chart
from tbmem.present.colours import category_colour, category_word
from tbmem.present.console import device_label
from tbmem.present.findings_text import efficiency_sentence, peak_sentence, trigger_text
from tbmem.present.html import Page, coloured, escape, finding, folded, whole
from tbmem.present.moments import FEW
from tbmem.present.report_text import python_frames
from tbmem.present.share_pictures import category_parts, reserved_parts
from tbmem.units import format_bytes

_ROWS = 25
_LEAST = 0.001
"""Of the largest peak: a GPU's trace has a few bytes on the CPU, which nobody asked for."""
_KINDS = {
    "snapshot": "memory snapshot",
    "trace": "trace of torch.profiler",
    "estimate": "estimate: nothing was run",
    "count": "a real step, every allocation counted",
}
_BASIS = {"known": "its name", "inferred": "inference", "mixed": "both"}


def report_page(analysis: Analysis, written: str = "", layers: Layers | None = None) -> str:
    """The page.

    Args:
        analysis: With its rows.
        written: When it is written.
        layers: Of the main device, if they are at hand.
    """
    kind = _KINDS.get(analysis.source, analysis.source)
    page = Page(f"Memory of {analysis.name}", f"{kind} · {analysis.path}", f"written {written}" if written else "")
    main = analysis.main
    small = []
    for device in sorted(analysis.devices, key=lambda one: (one is not main, -one.peak.bytes)):
        if device is main or device.peak.bytes > _LEAST * main.peak.bytes:
            _device(page, analysis, device, layers if device is main else None)
        else:
            small.append(f"{device_label(device.name)} {format_bytes(device.peak.bytes)}")
    if small:
        page.add(f'<p class="note">Too little to speak of: {escape(", ".join(small))}.</p>')
    if analysis.notes:
        page.heading("What is not known")
        page.add("<ul>", *(f"<li>{escape(note)}</li>" for note in analysis.notes), "</ul>")
    return page.render()


def _device(page: Page, analysis: Analysis, device: DeviceAnalysis, layers: Layers | None) -> None:
    page.heading(" · ".join(filter(None, (device_label(device.name), device.model))))
    page.tiles(_figures(device))
    page.add(*_findings(device))
    page.heading("Memory over time", 3)
    layers = layers or layers_of(analysis, device.number)
    if len(layers.event) > FEW:
        page.chart(timeline_chart(device, layers))
    else:
        page.add('<p class="note">Next to nothing was recorded: what follows was there all the time.</p>')
    page.heading("Categories", 3)
    if parts := category_parts(device.by_category, 12):
        page.chart(parts_chart({"at the peak": parts}))
    page.table(
        ("category", "at the peak", "%", "allocations", "most at any moment", "at the end", "known by"),
        map(_category, device.by_category),
        numbers=(1, 2, 3, 4, 5),
    )
    if parts := reserved_parts(device):
        page.heading("Reserved memory at the end", 3)
        page.chart(parts_chart({"reserved": parts}))
        page.table(("fragmentation", "bytes"), _fragmentation(device), numbers=(1,))
    if chart := modules_chart(device.modules):
        page.heading("Modules at the peak", 3)
        page.chart(chart)
    page.heading(f"The {len(device.top)} largest allocations at the peak", 3)
    page.table(
        ("size", "category", "what", "phase", "step", "line"),
        map(_allocation, device.top),
        numbers=(0, 4),
    )
    for title, shares in (
        ("Lines", device.by_line),
        ("Modules, repeated layers together", device.by_module),
        ("Operators", device.by_operator),
        ("Phases", device.by_phase),
    ):
        _shares(page, title, shares)
    sizes = sizes_of(analysis, device.number)
    if sizes.active.blocks.any() or sizes.gaps.blocks.any() or sizes.cached.blocks.any():
        page.heading("Sizes of blocks", 3)
        page.chart(sizes_chart(sizes))
    _lifetimes(page, device)


def _figures(device: DeviceAnalysis) -> Iterable[tuple[str, str, str]]:
    peak = device.peak
    phase = "" if peak.phase == Phase.OTHER.name else peak.phase.lower()
    when = " · ".join(filter(None, (f"step {peak.step}" if peak.step >= 0 else "", phase, peak.line)))
    yield "peak", format_bytes(peak.bytes), when
    for word, size in (
        ("reserved at the end", device.reserved_bytes),
        ("allocated at the end", device.allocated_bytes),
        ("peak of reserved", device.peak_reserved_bytes),
    ):
        if size is not None:
            yield word, format_bytes(size), ""
    if device.efficiency_percent is not None:
        yield "efficiency", f"{device.efficiency_percent:.1f} %", device.grade
    if device.fragmentation.free_in_gaps_bytes is not None:
        gaps = device.fragmentation.gaps or 0
        yield "fragmented", format_bytes(device.fragmentation.free_in_gaps_bytes), f"{gaps:,} gaps"
    if device.total_bytes:
        yield "device", format_bytes(device.total_bytes), f"{100 * peak.bytes / device.total_bytes:.0f} % at the peak"
    yield "events", f"{device.events:,}", f"{device.unmatched_frees:,} frees of older blocks"


def _findings(device: DeviceAnalysis) -> Iterable[str]:
    yield finding("info", peak_sentence(device).replace("`", ""))
    if device.efficiency_percent is not None and device.reserved_bytes is not None:
        kind = {"excellent": "good", "good": "info"}.get(device.grade, "warning")
        yield finding(kind, efficiency_sentence(device))
    for suspect in device.suspects:
        yield finding("critical", f"Suspected leak: {suspect.message}")
    for one in device.recommendations:
        yield finding("warning", one.message, trigger_text(one), one.setting)
    if not device.suspects and not device.recommendations:
        steps = ", and nothing piles up from step to step" if device.peak.step >= 0 else ""
        yield finding("good", f"Nothing to do: no figure is beyond its limit{steps}.")


def _category(share: Share) -> Sequence[str]:
    return (
        coloured(category_word(share.name), category_colour(share.name)),
        format_bytes(share.bytes),
        f"{share.percent:.1f}",
        f"{share.count:,}",
        "" if share.max_bytes is None else format_bytes(share.max_bytes),
        format_bytes(share.end_bytes),
        _BASIS.get(share.basis, ""),
    )


def _fragmentation(device: DeviceAnalysis) -> Iterable[Sequence[str]]:
    free = device.fragmentation
    for word, size in (
        ("cached: free in the allocator's hands", free.cached_bytes),
        ("of it in whole segments", free.free_in_whole_segments_bytes),
        ("of it in gaps between used blocks: fragmented", free.free_in_gaps_bytes),
        ("lost to rounding", free.rounding_loss_bytes),
        ("largest free block", free.largest_free_block_bytes),
        ("last request that failed", free.failing_request_bytes),
    ):
        if size is not None:
            yield escape(word), format_bytes(size)


def _allocation(one: Allocation) -> Sequence[str]:
    what = " · ".join(dict.fromkeys(filter(None, (one.name, one.module, one.operator))))
    return (
        format_bytes(one.bytes),
        coloured(category_word(one.category), category_colour(one.category)),
        escape(what),
        whole(one.phase.lower()),
        str(one.step) if one.step >= 0 else "",
        folded(one.line or "stack", python_frames(one.stack)) if one.stack else escape(one.line),
    )


def _shares(page: Page, title: str, shares: Sequence[Share]) -> None:
    filled = [share for share in shares if share.bytes]
    if not [share for share in filled if not share.name.startswith("(")]:
        return
    page.heading(title, 3)
    page.table(
        ("at the peak", "%", "allocations", title.partition(",")[0].lower().removesuffix("s")),
        (
            (
                format_bytes(one.bytes),
                f"{one.percent:.1f}",
                f"{one.count:,}",
                folded(one.name, python_frames(one.stack)),
            )
            for one in filled[:_ROWS]
        ),
        numbers=(0, 1, 2),
    )


def _lifetimes(page: Page, device: DeviceAnalysis) -> None:
    if not device.lifetimes:
        return
    page.heading("Lifetimes", 3)
    page.table(
        ("lived", "allocations", "bytes, one after the other", "alive at the peak"),
        (
            (escape(one.name), f"{one.count:,}", format_bytes(one.bytes), format_bytes(one.peak_bytes))
            for one in device.lifetimes
        ),
        numbers=(1, 2, 3),
    )
