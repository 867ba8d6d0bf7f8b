"""What the console says, and that it takes nothing from a program's own logging."""

from __future__ import annotations

import io
import logging
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.present.lines import (
    LOGGER_NAME,
    console_handler,
    device_label,
    finding_level,
    finding_line,
    get_logger,
    make_handler,
    memory_line,
    note_line,
    step_line,
)
from tests.conftest import GIB, MIB, MakeSample

LEAK = Finding(
    kind=FindingKind.LEAK,
    severity=Severity.CRITICAL,
    device="cuda:0",
    first_step=2,
    last_step=13,
    message="memory grows by 2.00 GiB per step since step 2",
    evidence={"holder": None},
    advice="store loss.item()",
)


@pytest.fixture
def no_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has not set up logging: another root logger, since pytest has handlers on the real one."""
    monkeypatch.setattr(get_logger().logger, "parent", logging.RootLogger(logging.WARNING))


@pytest.fixture
def own_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """A program that has set up logging itself; what it wrote."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s|%(levelname)s|%(message)s"))
    root = logging.RootLogger(logging.WARNING)
    root.addHandler(handler)
    monkeypatch.setattr(get_logger().logger, "parent", root)
    yield stream
    handler.close()


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


# lines


@pytest.mark.parametrize(
    ("device", "label"),
    [("cuda:0", "GPU 0"), ("cuda:12", "GPU 12"), ("cuda", "GPU"), ("xpu:1", "XPU 1"), ("mps", "GPU"), ("cpu", "CPU")],
)
def test_devices_have_the_names_that_people_use(device: str, label: str) -> None:
    assert device_label(device) == label


def test_a_note_names_its_device_as_tables_do() -> None:
    assert note_line("cuda:1: no history was recorded") == "GPU 1: no history was recorded"
    assert note_line("The names: those of the trace") == "The names: those of the trace"


def test_a_step_that_is_recorded_says_that_its_figures_hold_the_recording(make_sample: MakeSample) -> None:
    sample = make_sample(1, 1.0, device="cpu", profiled=True)
    assert memory_line(sample).endswith("with profiling's own memory")
    assert "recording" not in memory_line(sample._replace(profiled=False))


def test_a_level_of_an_earlier_step_says_so(make_sample: MakeSample) -> None:
    # given a row whose level was read a while before its end, and one that was read at it
    sample = make_sample(250, 1.5, device="cpu")
    earlier, read = SampleRow(241, 10, None, None, sample, level_step=236), SampleRow(241, 10, GIB, 2 * GIB, sample)
    # when / then
    assert step_line(earlier).startswith("step 250 · CPU memory · allocated 1.50 GiB (of step 236) · reserved")
    assert "of step" not in step_line(read)


def test_the_memory_line_is_the_one_of_the_guide(make_sample: MakeSample) -> None:
    # given
    sample = make_sample(120, 45.12, 46.80, reserved=47 * GIB)
    # when / then
    assert (
        memory_line(sample) == "GPU 0 memory · allocated 45.12 GiB · reserved 47.00 GiB · peak 46.80 GiB (58 % of 80)"
    )


def test_on_the_cpu_the_peak_is_the_resident_one() -> None:
    # given
    sample = MemorySample(
        step=1,
        time=0.0,
        device="cpu",
        allocated=round(1.25 * GIB),
        reserved=round(1.5 * GIB),
        host_rss=round(1.9 * GIB),
        host_peak_rss=2 * GIB,
        device_total=16 * GIB,
    )
    # when / then
    assert (
        memory_line(sample)
        == "CPU memory · allocated 1.25 GiB · reserved 1.50 GiB · resident peak 2.00 GiB (12 % of 16)"
    )


def test_below_a_gib_the_capacity_has_its_own_unit(make_sample: MakeSample) -> None:
    sample = make_sample(1, 0.5)
    assert memory_line(sample).endswith("peak 512.00 MiB (1 % of 80 GiB)")


@pytest.mark.parametrize(
    ("total", "text"),
    [(80 * GIB, "of 80)"), (round(139.8 * GIB), "of 139.8)"), (round(15.7 * GIB), "of 15.7)"), (24 * GIB, "of 24)")],
)
def test_the_capacity_is_short(total: int, text: str, make_sample: MakeSample) -> None:
    assert memory_line(make_sample(1, 10.0, device_total=total)).endswith(text)


@pytest.mark.parametrize("tib", [1, 2, 12])
def test_a_capacity_of_terabytes_is_written_without_an_exponent(tib: int, make_sample: MakeSample) -> None:
    # given: a host of that size is nothing special
    line = memory_line(make_sample(1, 45.0, device="cpu", device_total=tib * 1024 * GIB))
    # when / then
    assert "e+" not in line


def test_counters_that_a_device_does_not_have_are_left_out(make_sample: MakeSample) -> None:
    sample = make_sample(1, 45.0)
    assert (
        memory_line(sample._replace(reserved=None))
        == "GPU 0 memory · allocated 45.00 GiB · peak 45.00 GiB (56 % of 80)"
    )
    assert memory_line(sample._replace(device_total=None)).endswith("peak 45.00 GiB")
    assert memory_line(MemorySample(step=1, time=0.0, device="mps")) == "GPU memory"


def test_a_finding_is_kind_place_sentence_and_advice() -> None:
    finding = replace(LEAK, kind=FindingKind.NEAR_CAPACITY, message="memory is tight", advice="make room")
    assert finding_line(finding) == "NEAR CAPACITY  GPU 0 memory is tight · make room"
    assert finding_line(replace(finding, rank=3, advice="")) == "NEAR CAPACITY  GPU 0 rank 3 memory is tight"


def test_a_finding_is_one_block_that_ends_with_the_advice() -> None:
    assert finding_line(LEAK) == "LEAK  GPU 0 memory grows by 2.00 GiB per step since step 2 · store loss.item()"


@pytest.mark.parametrize("kind", [FindingKind.SUSPECT, FindingKind.DISMISSED])
def test_a_suspicion_is_for_those_who_ask(kind: FindingKind) -> None:
    assert finding_level(replace(LEAK, kind=kind)) == logging.DEBUG


def test_a_finding_of_no_device_has_no_gap() -> None:
    finding = replace(LEAK, kind=FindingKind.OOM, device="", message="step 7 ran out of memory", advice="")
    assert finding_line(finding) == "OOM  step 7 ran out of memory"


@pytest.mark.parametrize(
    ("severity", "level"),
    [(Severity.INFO, logging.INFO), (Severity.WARNING, logging.WARNING), (Severity.CRITICAL, logging.WARNING)],
)
def test_a_findings_level_is_that_of_its_severity(severity: Severity, level: int) -> None:
    assert finding_level(replace(LEAK, severity=severity)) == level


# the handler


@pytest.mark.usefixtures("no_logging")
def test_without_a_terminal_lines_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    # when
    with console_handler():
        get_logger().info("GPU 0 memory · allocated 45.12 GiB")
    # then: a time, the name, the line, and no escape sequences; nothing on standard output
    captured = capsys.readouterr()
    assert re.fullmatch(r"\d\d:\d\d:\d\d tbmem GPU 0 memory · allocated 45\.12 GiB\n", captured.err)
    assert captured.out == ""


@pytest.mark.usefixtures("no_logging")
def test_a_programs_own_stream_may_only_write(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a program that copies what is printed to a file, by an object with the two methods that print needs
    class Tee:
        said = ""

        def write(self, text: str) -> None:
            self.said += text

        def flush(self) -> None: ...

    tee = Tee()
    monkeypatch.setattr(sys, "stderr", tee)

    with console_handler():
        get_logger().info("a line")

    assert "tbmem a line" in tee.said


@pytest.mark.usefixtures("no_logging")
@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_standard_error_nothing_is_said(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if is_there else None)
    monkeypatch.setattr(logging, "raiseExceptions", False)

    with console_handler():
        get_logger().info("a line")


@pytest.mark.usefixtures("no_logging")
def test_on_a_terminal_lines_are_richs(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    # when
    with console_handler():
        get_logger().info("GPU 0 memory")
    # then
    assert "RichHandler" in [each.__name__ for each in type(make_handler()).__mro__]
    assert "GPU 0 memory" in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())


@pytest.mark.usefixtures("no_logging")
def test_on_a_terminal_brackets_are_text_and_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    # when
    with console_handler():
        get_logger().info("capacity [bold]50[/bold] [/oops]")
    # then
    assert "[bold]50[/bold] [/oops]" in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())


@pytest.mark.usefixtures("no_logging")
def test_a_console_that_was_given_is_used() -> None:
    # given
    stream = io.StringIO()
    # when
    with console_handler(Console(file=stream, width=100)):
        get_logger().info("GPU 0 memory")
    # then
    assert "GPU 0 memory" in stream.getvalue()


@pytest.mark.usefixtures("no_logging")
def test_afterwards_the_logger_is_as_it_was() -> None:
    # given
    logger = logging.getLogger(LOGGER_NAME)
    before = (logger.level, logger.propagate, list(logger.handlers))
    # when
    with console_handler():
        during = list(logger.handlers)
    # then
    assert len(during) == 1
    assert (logger.level, logger.propagate, logger.handlers) == before


@pytest.mark.usefixtures("no_logging")
def test_after_an_error_the_logger_is_as_it_was() -> None:
    with pytest.raises(KeyError), console_handler():
        raise KeyError
    assert get_logger().logger.handlers == []


@pytest.mark.usefixtures("no_logging")
def test_several_parts_share_one_handler(capsys: pytest.CaptureFixture[str]) -> None:
    # when
    with console_handler():
        with console_handler():
            get_logger().info("both")
        get_logger().info("one")
    get_logger().info("none")
    # then: each line once
    lines = [line.split(" tbmem ")[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["both", "one"]


@pytest.mark.usefixtures("no_logging")
def test_a_level_that_the_program_chose_stays(capsys: pytest.CaptureFixture[str]) -> None:
    # given
    logger = get_logger().logger
    logger.setLevel(logging.WARNING)
    try:
        # when
        with console_handler():
            logger.info("a memory line")
            logger.warning("a finding")
        # then
        assert logger.level == logging.WARNING
    finally:
        logger.setLevel(logging.NOTSET)
    assert [line.split(" tbmem ")[1] for line in capsys.readouterr().err.splitlines()] == ["a finding"]


def test_a_programs_own_logging_gets_the_lines_once(
    own_logging: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    # when
    with console_handler():
        get_logger().info("a memory line")
        handlers = list(get_logger().logger.handlers)
    # then
    assert own_logging.getvalue() == "tbmem|INFO|a memory line\n"
    assert capsys.readouterr().err == ""
    assert handlers == []
    assert get_logger().logger.level == logging.NOTSET


def test_other_loggers_are_not_touched(own_logging: io.StringIO) -> None:
    # given
    others = [logging.getLogger(), logging.getLogger("somebody")]
    before = [(each.level, each.propagate, list(each.handlers)) for each in others]
    # when
    with console_handler():
        during = [(each.level, each.propagate, list(each.handlers)) for each in others]
    # then
    assert during == before
    assert own_logging.getvalue() == ""


def test_sizes_of_a_small_run_are_in_mib(make_sample: MakeSample) -> None:
    sample = make_sample(1, 0.0)._replace(allocated=3 * MIB, reserved=4 * MIB, peak_allocated=5 * MIB)
    assert (
        memory_line(sample) == "GPU 0 memory · allocated 3.00 MiB · reserved 4.00 MiB · peak 5.00 MiB (0 % of 80 GiB)"
    )


@pytest.mark.usefixtures("no_logging")
def test_a_line_does_not_run_into_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    # given a bar of tqdm on the stream of the lines
    tqdm = pytest.importorskip("tqdm")
    with console_handler(), tqdm.tqdm(total=10, file=sys.stderr) as bar:
        bar.update(3)
        # when
        get_logger().info("step 10")
        bar.update(7)
    # then the line stands alone, and the bar is drawn again after it
    pieces = [piece.strip() for piece in re.split(r"[\r\n]", capsys.readouterr().err)]
    (at,) = [number for number, piece in enumerate(pieces) if piece.endswith("tbmem step 10")]
    assert re.fullmatch(r"\d\d:\d\d:\d\d tbmem step 10", pieces[at])
    assert any("3/10" in piece for piece in pieces[at + 1 :])


class _Raising(logging.Handler, logging.Filter):
    """A handler, and a filter, of the program's that fails."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("no room")

    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("no room")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tbmem")
    handlers, filters = list(logger.handlers), list(logger.filters)
    yield logger
    logger.handlers, logger.filters = handlers, filters


@pytest.mark.parametrize("add", ["addHandler", "addFilter"])
def test_a_handler_or_filter_of_the_program_s_that_raises_costs_the_line(root: logging.Logger, add: str) -> None:
    # given
    getattr(root, add)(_Raising())
    # when / then nothing is raised
    get_logger().warning("a line of %s", "tbmem")
    get_logger().debug("another")


def test_a_stream_that_was_closed_costs_the_line(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a program that closes standard error, as a daemon does
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    root.handlers = []
    monkeypatch.setattr(root, "propagate", False)
    with console_handler():
        stream.close()
        # when / then nothing is raised
        get_logger().warning("a line")


def test_what_a_signal_handler_raises_while_a_line_is_logged_is_the_program_s(root: logging.Logger) -> None:
    # given a timeout that comes in the middle of a line
    def late(*_: object) -> None:
        raise TimeoutError("too slow")

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, late)
    root.addHandler(Slow())
    # when / then
    try:
        with pytest.raises(TimeoutError):
            get_logger().warning("a line")
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="there is no SIGALRM here")
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_timeout_of_the_program_that_arrives_in_a_console_line_is_raised(
    is_terminal: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a stream that is interrupted while a line is written
    def timeout(_number: int, _frame: object) -> None:
        raise TimeoutError("the batch took too long")

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            signal.raise_signal(signal.SIGALRM)
            return len(text)

    stream = Stream()
    monkeypatch.setattr("sys.stderr", stream)
    handler = make_handler(Console(file=stream) if is_terminal else None)
    before = signal.signal(signal.SIGALRM, timeout)
    try:
        # when, then
        with pytest.raises(TimeoutError, match="too long"):
            handler.handle(logging.LogRecord("tbmem", logging.INFO, __file__, 1, "a line", (), None))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert "Logging error" not in capfd.readouterr().err
