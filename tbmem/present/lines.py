"""Console lines for samples, findings and signals, and the log handler that prints them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from tbmem.interruption import raise_interruption
from tbmem.model.finding import EVALUATION_LABEL, Finding, FindingKind, Severity
from tbmem.model.sample import INDEXED_DEVICE, MemorySample
from tbmem.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from tbmem.model.sample_row import SampleRow

    _StreamHandler = logging.StreamHandler[Any]
    _LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    _StreamHandler, _LoggerAdapter = logging.StreamHandler, logging.LoggerAdapter  # no parameter in Python 3.10

LOGGER_NAME = "tbmem"
SEPARATOR = " · "


@cache
def device_label(device: str) -> str:
    """``'cuda:0'`` as ``'GPU 0'``, ``'cpu'`` as ``'CPU'``."""
    kind, _, index = device.partition(":")
    name = {"cuda": "GPU", "mps": "GPU"}.get(kind, kind.upper())
    return f"{name} {index}" if index else name


def note_line(note: str) -> str:
    """A note on a device under the name that tables give it: ``'cuda:0: no history'`` as ``'GPU 0: no history'``."""
    device, colon, text = note.partition(": ")
    return f"{device_label(device)}{colon}{text}" if INDEXED_DEVICE.fullmatch(device) else note


def step_line(row: SampleRow) -> str:
    """The last step of a row on one line: ``'step 250 · CPU memory · allocated 182.66 MiB (of step 236) · ...'``."""
    return f"step {row.sample.step} · {memory_line(row.sample, level_step=row.level_step)}"


def level_note(level_step: int | None) -> str:
    """``' (of step 236)'``: says behind a level that it was read after an earlier step than those beside it."""
    return "" if level_step is None else f" (of step {level_step})"


def memory_line(sample: MemorySample, *, level_step: int | None = None) -> str:
    """One step's memory on one line; ``level_step``: step after which its level was read, if an earlier one.

    For example ``GPU 0 memory · allocated 45.12 GiB · reserved 47.00 GiB · peak 46.80 GiB (58 % of 80)``.
    """
    parts = [f"{device_label(sample.device)} memory"]
    if sample.allocated is not None:
        parts.append(f"allocated {format_bytes(sample.allocated)}{level_note(level_step)}")
    if sample.reserved is not None:
        parts.append(f"reserved {format_bytes(sample.reserved)}")
    peak = sample.peak
    if peak is not None:
        word = peak_word("peak_allocated" if sample.peak_allocated is not None else "host_peak_rss")
        parts.append(f"{word} {format_bytes(peak)}{_share(peak, sample.device_total)}")
    if sample.holds_profiler:
        parts.append("with profiling's own memory")
    return SEPARATOR.join(parts)


def signal_line(record: Mapping[str, Any]) -> str:
    """A signal that came to the process, on one line, from its record in the log."""
    what = "the run ends here" if record["ends"] else "the program handles the signal"
    return f"{record['name']} after step {record['step']}: all records are written; {what}"


def _share(peak: int, total: int | None) -> str:
    """``' (58 % of 80)'``: the capacity, its unit left out where the peak has the same."""
    if not total:
        return ""
    total = max(total, peak)  # as for the peak of the run
    amount, unit = format_bytes(total).split()
    unit = "" if format_bytes(peak).endswith(f" {unit}") else f" {unit}"
    return f" ({100 * peak / total:.0f} % of {float(amount):g}{unit})"


def peak_word(counter: str | None) -> str:
    """Name of a peak by the counter that it was read from: ``'resident peak'`` on the CPU."""
    return {"host_peak_rss": "resident peak", "allocated": "highest level"}.get(counter or "", "peak")


def finding_line(finding: Finding) -> str:
    """A finding as one block: kind, place, sentence, advice."""
    text = f"{finding.label}  {finding_sentence(finding)}"
    return f"{text}{SEPARATOR}{finding.advice}" if finding.advice else text


def finding_sentence(finding: Finding) -> str:
    """Place and sentence of a finding, ``'GPU 0 rank 3 +8.20 MiB/step since ...'``."""
    rank = f"rank {finding.rank}" if finding.rank else ""
    return " ".join(filter(None, (device_label(finding.device), rank, finding.message)))


def finding_level(finding: Finding) -> int:
    """Log level of a finding; suspicions are logged at debug level."""
    if finding.kind.is_quiet:
        return logging.DEBUG
    return logging.INFO if finding.severity is Severity.INFO else logging.WARNING


def show_finding(finding: Finding) -> None:
    """Log a finding at its level."""
    get_logger().log(finding_level(finding), "%s", finding_line(finding))


class SafeLogger(_LoggerAdapter):
    """A logger that raises no error of a handler, a filter or a stream of the program: the line is lost instead."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line; ``debug``, ``info``, ``warning`` and ``error`` come here as well."""
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception as error:
            raise_interruption(error)


def get_logger() -> SafeLogger:
    """The logger of all console output."""
    return _logger


_logger = SafeLogger(logging.getLogger(LOGGER_NAME), {})


class _LoggerState:
    """Changes made to the logger, and the number of current users."""

    users = 0
    handler: logging.Handler | None = None
    level = logging.NOTSET
    propagate = True


@contextmanager
def console_handler(console: Console | None = None) -> Iterator[None]:
    """Show tbmem's lines while entered, unless the program has set up logging itself.

    May be entered several times at once; the last exit restores the logger. A program that draws a progress bar gives
    the console it draws on; by default it is standard error, with colours on a terminal and plain lines elsewhere.
    """
    if _LoggerState.users == 0:
        _show(console)
    _LoggerState.users += 1
    try:
        yield
    finally:
        _LoggerState.users -= 1
        if _LoggerState.users == 0:
            _hide()


def _show(console: Console | None) -> None:
    logger = get_logger().logger
    _LoggerState.level, _LoggerState.propagate = logger.level, logger.propagate
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    if console is not None or not logger.hasHandlers():
        _LoggerState.handler = make_handler(console)
        logger.addHandler(_LoggerState.handler)
        logger.propagate = False


def _hide() -> None:
    logger = get_logger().logger
    if _LoggerState.handler is not None:
        logger.removeHandler(_LoggerState.handler)
        _LoggerState.handler.close()
        _LoggerState.handler = None
    logger.setLevel(_LoggerState.level)
    logger.propagate = _LoggerState.propagate


def make_handler(console: Console | None = None) -> logging.Handler:
    """A handler for a terminal (rich) or for any other stream (plain lines)."""
    if console is None and sys.stderr is None:
        return logging.NullHandler()  # standard error was closed before Python started
    if console is None and not _is_terminal(sys.stderr):
        handler = _PlainHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s tbmem %(message)s", datefmt="%H:%M:%S"))
        return handler
    from rich.console import Console
    from rich.logging import RichHandler

    class ColouredHandler(_InterruptedByTheProgram, RichHandler):
        def emit(self, record: logging.LogRecord) -> None:
            with _bars_cleared(self.console.file):
                super().emit(record)

    return ColouredHandler(
        console=console or Console(stderr=True),
        show_path=False,
        show_level=False,
        log_time_format="%H:%M:%S",
        omit_repeated_times=False,
        keywords=[*(kind.label for kind in FindingKind), EVALUATION_LABEL],
    )


class _InterruptedByTheProgram(logging.Handler):
    """A handler that does not swallow an exception of the program's, such as a timeout's, that arrives in it."""

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            raise_interruption(error)
        super().handleError(record)


class _PlainHandler(_InterruptedByTheProgram, _StreamHandler):
    def emit(self, record: logging.LogRecord) -> None:
        with _bars_cleared(self.stream):
            super().emit(record)


def _bars_cleared(stream: Any) -> AbstractContextManager[object]:
    """Take tqdm's progress bars off a stream for the length of a line, if the program draws some."""
    bars: Any = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    return bars.external_write_mode(file=stream) if getattr(bars, "_instances", None) else nullcontext()


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False  # an object that only writes, or a closed stream
