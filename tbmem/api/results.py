"""Results of the functions that the commands print: the short form, the text and the JSON of each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from tbmem.analysis.estimates import fit
from tbmem.model import rehearsal
from tbmem.present.text.estimate import estimate_lines, estimate_view
from tbmem.present.text.rehearsal import largest_lines, largest_view, rehearsal_lines, rehearsal_view
from tbmem.units import format_bytes, format_range

_Own = TypeVar("_Own", bound="Result")


class Result:
    """A result: ``repr`` is its short form, ``str`` what the command prints, ``to_dict`` what ``--json`` prints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(self._headline())

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON values, sizes in bytes."""
        raise NotImplementedError

    def to_json(self, indent: int | None = 2) -> str:
        """The same as JSON text, as the command's ``--json`` prints it."""
        return json.dumps(self.to_dict(), indent=indent)

    def _headline(self) -> Iterable[str]:
        raise NotImplementedError

    def _lines(self) -> Iterable[str]:
        raise NotImplementedError


def as_result(kind: type[_Own], record: Any, **changes: Any) -> _Own:
    """The record of an engine as a result of the API, which adds only methods and the fields in ``changes``."""
    return kind(**{field.name: getattr(record, field.name) for field in fields(record)}, **changes)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Estimate(Result, fit.Estimate):
    """The memory of a training run that was estimated: peaks, what they consist of, and whether they fit.

    Sizes are bytes. ``gpus`` says for each GPU that was asked for whether the run fits; all other fields are of the
    first of them.
    """

    files: tuple[str, ...] = ()
    """Files that were written: a recording and the figures as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The estimate as plain JSON values, as ``tbmem estimate --json`` prints it."""
        return estimate_view(self)

    def _headline(self) -> Iterable[str]:
        peak = f"peak {format_bytes(self.peak_allocated)} allocated, {format_bytes(self.peak_reserved)} reserved"
        yield f"Estimate of {self.job.model} on {self.gpu}: {peak} (expected {format_range(*self.reserved_range)})"
        yield f"  {self.sentence}"
        others = [f"{each.gpu} {each.fit.word}" for each in self.gpus[1:]]
        if others:
            yield f"  Other GPUs: {', '.join(others)}"

    def _lines(self) -> Iterable[str]:
        yield from estimate_lines(self)
        yield from (f"wrote {file}" for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Rehearsal(Result, rehearsal.Rehearsal):
    """The memory that a program used on simulated GPUs, and whether it fits; sizes are bytes."""

    def to_dict(self) -> dict[str, Any]:
        """The rehearsal as plain JSON values, as ``tbmem rehearse --json`` prints it."""
        return rehearsal_view(self)

    def _headline(self) -> Iterable[str]:
        peak = f"peak {format_bytes(self.peak_allocated)} allocated, {format_bytes(self.peak_reserved)} reserved"
        left = f"It fits, with {format_bytes(self.headroom)} left." if self.fits else "It does not fit."
        if self.needed is not None:
            left = f"{left} {format_bytes(self.needed)} are needed."
        yield f"Rehearsal of {self.program} on {self.gpu}: {peak}"
        yield f"  {left}"

    def _lines(self) -> Iterable[str]:
        return rehearsal_lines(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Largest(Result, rehearsal.Largest):
    """The largest value of an argument with which a program fits, and the values that were tried."""

    def to_dict(self) -> dict[str, Any]:
        """The search as plain JSON values, as ``tbmem rehearse --largest ... --json`` prints it."""
        return largest_view(self)

    def _headline(self) -> Iterable[str]:
        yield next(iter(largest_lines(self)))

    def _lines(self) -> Iterable[str]:
        return largest_lines(self)
