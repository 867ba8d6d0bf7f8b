"""Prometheus's own parser reads what the sink serves, and writes to a file."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tbmem.errors import ConfigError
from tbmem.model.sample import MemorySample
from tbmem.runtime.metric_sinks import MetricSinks, find_sinks
from tbmem.runtime.process.guard import Guard
from tests.conftest import GIB
from tests.sinks.conftest import PEAK, Logged

client: Any = pytest.importorskip("prometheus_client", reason="not installed: pip install --group loggers")
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402  (only where it is installed)

from tbmem.present.scalars import scalars_of  # noqa: E402
from tbmem.sinks.prometheus import PrometheusSink  # noqa: E402


def _values(text: str) -> dict[str, float]:
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.labels["device"] for sample in found} == {"cuda:0"}
    return {sample.name: sample.value for sample in found}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_file_has_every_scalar_in_bytes(logged: Logged, samples: list[MemorySample], tmp_path: Path) -> None:
    # when
    logged(PrometheusSink(str(tmp_path / "tbmem.prom")))
    # then
    values = _values((tmp_path / "tbmem.prom").read_text())
    names = {"bytes": "_bytes", "percent": "", "": ""}
    expected = {f"tbmem_memory_{name}{names[unit]}": value for name, value, unit in scalars_of(samples[-1])}
    assert {name: values[name] for name in expected} == pytest.approx(expected)
    assert values["tbmem_memory_peak_bytes"] == PEAK * GIB
    assert values["tbmem_findings_total"] == values["tbmem_verdict"] == 1
    assert values["tbmem_step"] == 30


def test_another_rank_has_a_file_of_its_own(logged: Logged, tmp_path: Path) -> None:
    logged(PrometheusSink(str(tmp_path / "tbmem.prom")), rank=2)

    assert 'rank="2"' in (tmp_path / "tbmem-rank2.prom").read_text()


def test_metrics_are_served_while_the_run_lasts(logged: Logged) -> None:
    # given
    sink = PrometheusSink(f"127.0.0.1:{(port := _free_port())}")
    served: list[str] = []

    def scrape() -> None:
        while not any("tbmem_findings_total" in text for text in served):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    served.append(answer.read().decode())
            except ConnectionRefusedError:
                continue
            except OSError as error:
                if not isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                    raise

    # when
    logged(sink, during=scrape)
    # then
    assert _values(served[-1])["tbmem_memory_allocated_bytes"] == 65 * GIB
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_a_registry_of_the_program_is_used_and_left_as_it_was(logged: Logged) -> None:
    # given
    registry, seen = client.CollectorRegistry(), []
    # when
    sink = PrometheusSink(registry=registry)
    closed = sink.close
    sink.close = lambda: (seen.append(client.generate_latest(registry).decode()), closed())[1]  # type: ignore[method-assign]
    logged(sink)
    # then
    assert _values(seen[0])["tbmem_memory_peak_bytes"] == PEAK * GIB
    assert client.generate_latest(registry) == b""


def test_a_port_that_is_taken_is_told_and_nothing_else(samples: list[MemorySample]) -> None:
    # given
    with socket.create_server(("127.0.0.1", 0)) as taken:
        guard = Guard()
        sinks = MetricSinks(PrometheusSink(f"127.0.0.1:{taken.getsockname()[1]}"), guard)
        sinks.begin(None, 0)
        # when
        sinks.write([{"type": "end"}])
        sinks.close()
    # then
    (problem,) = guard.problems
    assert problem.startswith("sink prometheus is off: OSError")


@pytest.mark.parametrize("target", ["x", "99999", "127.0.0.1:65536"])
def test_a_target_that_is_none(target: str) -> None:
    with pytest.raises(ConfigError, match=r"prometheus:\S+: takes a port up to 65535, address:port, or a file"):
        find_sinks([f"prometheus:{target}"])
