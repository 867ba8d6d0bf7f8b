"""A summary, findings and a cell's memory as HTML for a notebook.

Text has the notebook's own colour, grounds are translucent, and borders stand out from light and dark: the page's theme
need not be known. Styles are attributes, which a notebook that is not trusted keeps, and without which all is readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tbmem.model.cell_memory import CellMemory
from tbmem.model.finding import Finding
from tbmem.model.html_display import HtmlDisplay
from tbmem.model.run_summary import RunSummary
from tbmem.present.lines import finding_sentence
from tbmem.present.palette import ON_ANY_GROUND, finding_colour
from tbmem.present.text.cell import cell_heading, kept_lines, levels_line
from tbmem.present.text.run_end import figure_lines, heading_line, look_command, verdict_heading, written_line

_BLOCK = "max-width:960px;font-size:13px;line-height:1.5;overflow-wrap:anywhere;color:inherit"
_ENTRY = "margin:4px 0;padding:2px 10px;border-left:4px solid {};background:rgba(128,128,128,.10)"
_QUIET = "opacity:.85"
_SHOWN = 5
"""Findings that are shown at once; of more the rest is folded."""


def record_html(record: HtmlDisplay) -> str:
    """The HTML of a record."""
    if isinstance(record, RunSummary):
        return summary_html(record)
    if isinstance(record, CellMemory):
        return cell_html(record)
    if isinstance(record, Finding):
        return block([finding_html(record)])
    assert isinstance(record, (tuple, list))  # nosec B101  # for the type checker
    return findings_html(record)


def summary_html(summary: RunSummary) -> str:
    """The lines that end a run on the console, and the findings that went before them."""
    verdicts = [_entry(one, verdict_heading(one), one.message) for one in summary.verdicts]
    said = {(verdict.device, verdict.kind) for verdict in summary.verdicts}
    others = [one for one in summary.findings if one not in summary.verdicts]
    new = [one for one in others if (one.device, one.kind) not in said]
    earlier = [one for one in others if (one.device, one.kind) in said]  # of which the verdict is the last word
    return block(
        [
            _line(f"<b>{escape(heading_line(summary))}</b>"),
            *verdicts,
            *_folded(new),
            *_folded(earlier, 0, "earlier"),
            *(_line(escape(text)) for text in figure_lines(summary)),
            *_files(summary),
        ]
    )


def _files(summary: RunSummary) -> list[str]:
    written = written_line(summary)
    command = f"look: <code>{escape(look_command(summary))}</code>"
    return [_line(escape(written), _QUIET), _line(command, _QUIET)] if written else []


def cell_html(cell: CellMemory) -> str:
    """The memory of a cell."""
    texts = [*(levels_line(levels) for levels in cell.levels), *kept_lines(cell)]
    return block([_line(f"<b>{escape(cell_heading(cell))}</b>"), *(_line(escape(text)) for text in texts)])


def findings_html(findings: Sequence[Finding]) -> str:
    """Findings, one below the other."""
    return block(_folded(findings) if findings else [_line("no findings")])


def finding_html(finding: Finding) -> str:
    """One finding: kind, place and sentence, and its advice below."""
    return _entry(finding, finding.label, finding_sentence(finding))


def block(parts: Iterable[str]) -> str:
    """Parts below each other, as one piece of a notebook's output."""
    return f'<div class="tbmem" style="{_BLOCK}">{"".join(parts)}</div>'


def _folded(findings: Sequence[Finding], shown: int = _SHOWN, word: str = "more") -> list[str]:
    """The first entries, and the others behind a line that opens them."""
    entries = [finding_html(finding) for finding in findings]
    rest = entries[shown:]
    title = f"{len(rest)} {word} finding{'' if len(rest) == 1 else 's'}"
    more = f"<details><summary>{title}</summary>{''.join(rest)}</details>"
    return [*entries[:shown], *([more] if rest else [])]


def _entry(finding: Finding, heading: str, sentence: str) -> str:
    colour = finding_colour(finding.kind, finding.severity)
    style = _ENTRY.format(ON_ANY_GROUND.get(colour, colour))
    advice = _line(escape(finding.advice), _QUIET) if finding.advice else ""
    return f'<div style="{style}"><b>{escape(heading)}</b> {escape(sentence)}{advice}</div>'


def _line(html: str, style: str = "") -> str:
    return f'<div style="{style}">{html}</div>' if style else f"<div>{html}</div>"
