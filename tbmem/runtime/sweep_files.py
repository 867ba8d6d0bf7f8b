"""A Sweep goes in; the files of its tables come out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tbmem.model.files import complete_or_nothing
from tbmem.model.sweep import Sweep
from tbmem.present.sweep import activation_text, largest_text, peak_table, precision_table

_TEXTS = {
    "peak_memory_summary.txt": peak_table,
    "mixed_precision_memory_summary.txt": precision_table,
    "activation_size_analysis.txt": activation_text,
    "largest_allocations.txt": largest_text,
}
JSON_NAME = "sweep.json"


def texts_of(sweep: Sweep) -> dict[str, str]:
    """Each table by the name of its file; that of mixed precision only where there is any."""
    mixed = any(cell.case.precision != "fp32" for cell in sweep.cells)
    return {name: "\n".join(lines(sweep)) for name, lines in _TEXTS.items() if mixed or lines is not precision_table}


def write_texts(sweep: Sweep, folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write tables, and everything as JSON.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = {**{name: f"{text}\n" for name, text in texts.items()}, JSON_NAME: json.dumps(sweep.to_dict(), indent=2)}
    for name, text in contents.items():
        with complete_or_nothing(folder / name) as partial:
            partial.write_text(text)
    return [folder / name for name in contents]
