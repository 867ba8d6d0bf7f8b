"""Pytest marks that fail tests which use or leak too much memory.

::

    @pytest.mark.limit_memory("200 MiB")
    def test_forward(): ...

    @pytest.mark.no_leak(steps=20)
    def test_train_step(): ...  # runs twenty times; with the fixture `memory` once, and calls memory.step() itself

Loaded by pytest in every session, so tbmem's runtime is only imported by tests with a mark.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tbmem.errors import ConfigError
from tbmem.model.sample import INDEXED_DEVICE
from tbmem.units import format_bytes, format_signed, parse_bytes

if TYPE_CHECKING:
    from tbmem.runtime.meter import MemoryMeter

_MARKERS = (
    "limit_memory(size, device=None): the test must not need more than size ('200 MiB') above what was held before",
    "no_leak(steps=20, max_growth='1 KiB', device=None): repeated, the test must not keep more than max_growth a time",
)
_METER = pytest.StashKey["MemoryMeter"]()
_IS_REPEATED = pytest.StashKey[bool]()
_FEWEST_STEPS = 8
_NAMED = 3


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose mark has invalid arguments; the others run."""
    problem = _problem_of(item)
    if problem:  # outside of the handler, whose exception pytest would show as well
        _fail(problem)


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Iterator[MemoryMeter]:
    """Measures the test: ``memory.step()`` after each repetition, ``memory.peak`` in bytes above the start."""
    meter = _meter_for(request.node)
    request.node.stash[_METER] = meter
    yield meter
    del request.node.stash[_METER]
    meter.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Repeat a test marked no_leak, unless it uses the fixture ``memory``."""
    _, leak = _limits_of(pyfuncitem)
    meter = pyfuncitem.stash.get(_METER, None)
    if leak is None or meter is None or pyfuncitem.funcargs.get("memory") is meter:
        return None
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        _fail("no_leak: a coroutine cannot be repeated; use the fixture memory")
    for _ in range(leak[0]):
        _call(pyfuncitem)
        meter.step()
    pyfuncitem.stash[_IS_REPEATED] = True
    return True


def _call(item: pytest.Function) -> None:
    item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})


def _kept_by(item: pytest.Function, meter: MemoryMeter) -> str:
    """What holds more after further repetitions than before, and the lines that feed it; empty if that is not known."""
    from tbmem.runtime.repetition import REPETITIONS, kept_by, kept_in_steps

    def repeat() -> bool:
        try:
            _call(item)
        except (Exception, pytest.fail.Exception, pytest.skip.Exception):
            return False  # the test may not bear more repetitions than were asked for
        return True

    named = {str(item.path): item.funcargs}
    if _IS_REPEATED in item.stash:
        kept = kept_by(repeat, named)
        held = [(one.name, f"{format_signed(one.bytes)} in {REPETITIONS} further steps", one.lines) for one in kept]
    elif inspect.iscoroutinefunction(item.obj):
        return ""
    else:
        growing = kept_in_steps(repeat, meter, named)
        held = [
            (one.name, f"{format_signed(round(one.bytes_per_step))} a step", tuple(map(str, one.lines)))
            for one in growing
        ]
    return "".join(
        f"\n  {name}: {gain}" + "".join(f"\n    {line}" for line in lines[:_NAMED])
        for name, gain, lines in held[:_NAMED]
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Measure a marked test, and fail it if a limit is exceeded."""
    limit, leak = _limits_of(item)
    if limit is None and leak is None:
        return (yield)
    existing = item.stash.get(_METER, None)
    meter = existing or _meter_for(item)
    item.stash[_METER] = meter
    try:
        result = yield
        _judge(meter, limit, leak, item)
    finally:
        if existing is None:
            del item.stash[_METER]
            meter.close()
    return result


def _meter_for(item: pytest.Item) -> MemoryMeter:
    from tbmem.runtime.meter import MemoryMeter

    marks = [mark for mark in _marks_of(item) if mark is not None]
    device = next((mark.kwargs["device"] for mark in marks if "device" in mark.kwargs), None)
    try:
        return MemoryMeter(device)
    except ConfigError:
        return pytest.skip(f"there is no {device} here")


def _judge(meter: MemoryMeter, limit: int | None, leak: tuple[int, int] | None, item: pytest.Item) -> None:
    steps, device = meter.steps, meter.device
    if limit is not None and meter.peak > limit:
        _fail(f"limit_memory: needed {format_bytes(meter.peak)} on {device}, at most {format_bytes(limit)}")
    if leak is None:
        return
    growth, most = meter.kept_per_step(), leak[1]
    if growth is None and steps == 0:
        # a unittest.TestCase, or run by another plugin
        _fail("no_leak: pytest did not call this test itself, so it was not repeated")
    if growth is None:
        _fail(f"no_leak: too few steps to tell: {steps}; call memory.step() at least eight times")
    if growth > most:
        keeps = f"no_leak: each of {steps} steps keeps {format_bytes(growth)} on {device}, at most {format_bytes(most)}"
        _fail(keeps + (_kept_by(item, meter) if isinstance(item, pytest.Function) else ""))


def _fail(message: str) -> NoReturn:
    pytest.fail(message, pytrace=False)


def _marks_of(item: pytest.Item) -> list[pytest.Mark | None]:
    return [item.get_closest_marker(name) for name in ("limit_memory", "no_leak")]


def _problem_of(item: pytest.Item) -> str:
    """What is wrong with the arguments of its marks; empty if nothing is."""
    try:
        _limits_of(item)
    except (TypeError, ValueError) as error:
        # the function that checks the arguments is named like the mark, which Python's message shows
        return str(error).lstrip("_")
    return ""


def _limits_of(item: pytest.Item) -> tuple[int | None, tuple[int, int] | None]:
    """Bytes of limit_memory; steps and bytes per step of no_leak."""
    limit, leak = _marks_of(item)
    size = None if limit is None else _limit_memory(*limit.args, **limit.kwargs)
    return size, None if leak is None else _no_leak(*leak.args, **leak.kwargs)


def _limit_memory(size: int | str, device: str | None = None) -> int:
    _check_device(device)
    return parse_bytes(size)


def _no_leak(steps: int = 20, max_growth: int | str = "1 KiB", device: str | None = None) -> tuple[int, int]:
    _check_device(device)
    if not isinstance(steps, int):
        raise ValueError(f"no_leak(steps={steps!r}): steps is a whole number")
    if steps < _FEWEST_STEPS:
        raise ValueError(f"no_leak(steps={steps}): eight steps are the fewest that tell anything")
    return steps, parse_bytes(max_growth)


def _check_device(device: object) -> None:
    """Reject invalid device names; a valid device that is absent skips the test."""
    if device is not None and not (isinstance(device, str) and INDEXED_DEVICE.fullmatch(device)):
        raise ValueError(f"device={device!r} is no device; write 'cpu' or 'cuda:0'")
