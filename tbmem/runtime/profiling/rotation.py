"""Which windows' files a run keeps (``profiling.keep``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tbmem.model.finding import Finding
from tbmem.runtime.profiling.window_ledger import WindowResult


def windows_to_delete(windows: Sequence[WindowResult], findings: Iterable[Finding], keep: int) -> list[WindowResult]:
    """The windows whose files are to be deleted so that those of ``keep`` remain; 0 keeps all.

    A window of which a finding names a file always stays. Then, as far as there is room: the first, the one with the
    highest peak, the newest, those in whose steps something was found, and the others, the newest first.

    Args:
        windows: Windows that have files, oldest first.
        findings: What was found in the run so far.
        keep: Number of windows that may have files.
    """
    if not keep or len(windows) <= keep:
        return []
    findings = [finding for finding in findings if not finding.kind.is_quiet]
    named = {name for finding in findings for name in _names(finding)}
    found = [finding for finding in findings if finding.last_step > 0]
    highest = max(windows, key=lambda window: window.peak)

    def rank(window: WindowResult) -> tuple[bool, ...]:
        return (
            any(path.name in named for path in window.files),
            window is windows[0],
            window is highest,
            window is windows[-1],
            any(_is_within(finding, window.steps) for finding in found),
        )

    newest_first = list(reversed(windows))
    order = sorted(newest_first, key=rank, reverse=True)  # a stable sort
    return [window for window in order[keep:] if not rank(window)[0]]


def _names(finding: Finding) -> list[str]:
    files = finding.evidence.get("files")
    return [str(name) for name in files] if isinstance(files, (list, tuple)) else []


def _is_within(finding: Finding, steps: Sequence[int]) -> bool:
    """Whether something happened in steps: at a finding's last one, or at each that a pattern has."""
    members = finding.evidence.get("member_steps")
    happened = [*(members if isinstance(members, (list, tuple)) else ()), finding.last_step]
    return bool(steps) and any(steps[0] <= step <= steps[-1] for step in happened)
