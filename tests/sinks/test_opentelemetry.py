"""OpenTelemetry's in-memory exporters have what the sink has sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tbmem.model.sample import MemorySample
from tests.conftest import GIB
from tests.sinks.conftest import LEAK, PEAK, Logged

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="not installed: pip install --group loggers")
from opentelemetry import _logs, metrics
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tbmem.present.scalars import scalars_of
from tbmem.sinks import opentelemetry as sink


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[InMemoryMetricReader, InMemoryLogRecordExporter]]:
    """Global providers of the program, which can be set once in a process."""
    reader, exporter = InMemoryMetricReader(), InMemoryLogRecordExporter()
    meters, loggers = MeterProvider([reader]), LoggerProvider()
    loggers.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    monkeypatch.setattr(_logs, "get_logger_provider", lambda: loggers)
    yield reader, exporter
    meters.shutdown()
    loggers.shutdown()


def _gauges(reader: InMemoryMetricReader) -> dict[str, tuple[float, str]]:
    data: Any = reader.get_metrics_data()
    (scope,) = data.resource_metrics[0].scope_metrics
    return {metric.name: (metric.data.data_points[0].value, metric.unit) for metric in scope.metrics}


def test_scalars_are_gauges_and_findings_are_events(
    exported: tuple[InMemoryMetricReader, InMemoryLogRecordExporter], logged: Logged, samples: list[MemorySample]
) -> None:
    # when
    logged(sink.OpenTelemetrySink())
    # then
    gauges = _gauges(exported[0])
    expected = {f"tbmem.memory.{name}": value for name, value, _ in scalars_of(samples[-1])}
    assert {name: gauges[name][0] for name in expected} == expected
    assert gauges["tbmem.memory.allocated"][1] == "By"
    assert gauges["tbmem.memory.peak"] == (PEAK * GIB, "By")
    records = [each.log_record for each in exported[1].get_finished_logs()]
    assert [record.event_name for record in records] == ["tbmem.finding", "tbmem.verdict"]
    assert records[0].body == LEAK.message
    assert dict(records[0].attributes or {})["tbmem.kind"] == "leak"


def test_without_providers_there_are_some_of_its_own(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    reader, exporter, about = InMemoryMetricReader(), InMemoryLogRecordExporter(), []
    monkeypatch.setattr(sink, "PeriodicExportingMetricReader", lambda _: reader)
    monkeypatch.setattr(sink._log_exporter, "OTLPLogExporter", lambda: exporter)
    ended = reader.shutdown
    monkeypatch.setattr(reader, "shutdown", lambda *a, **k: (about.append(_gauges(reader)), ended())[1])
    # when
    logged(sink.OpenTelemetrySink())
    # then
    assert about[0]["tbmem.memory.peak"] == (PEAK * GIB, "By")
    assert len(exporter.get_finished_logs()) == 2
