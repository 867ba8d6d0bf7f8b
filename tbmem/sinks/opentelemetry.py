"""Sends a run's memory to OpenTelemetry: scalars as gauges, findings and verdicts as events (log records)."""

from __future__ import annotations

from typing import Any

from opentelemetry import _logs, metrics
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import _log_exporter, metric_exporter
from opentelemetry.sdk._logs import LoggerProvider, export
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from tbmem.model.finding import Finding, Severity
from tbmem.runtime.metric_sinks import RunInfo, Summary
from tbmem.sinks.gauges import GaugeSink

_UNITS = {"bytes": "By", "percent": "%", "": "1"}
_LEVELS = dict(zip(Severity, (SeverityNumber.INFO, SeverityNumber.WARN, SeverityNumber.ERROR), strict=True))


class OpenTelemetrySink(GaugeSink):
    """Gauges such as ``tbmem.memory.allocated`` (By), events ``tbmem.finding`` and ``tbmem.verdict``.

    They go to the program's global providers; without any, to OTLP over HTTP, as ``OTEL_EXPORTER_OTLP_*`` say.
    """

    name = "opentelemetry"

    def join(self) -> bool:
        """Whether the program has set a provider: it can be flushed, the default cannot."""
        self._providers: list[Any] = [metrics.get_meter_provider(), _logs.get_logger_provider()]
        return any(hasattr(provider, "force_flush") for provider in self._providers)

    def open(self, run: RunInfo) -> None:  # noqa: D102
        self._about, self._is_own = {"tbmem.run": run.name, "tbmem.rank": run.rank}, not self.join()
        if self._is_own:
            reader = PeriodicExportingMetricReader(metric_exporter.OTLPMetricExporter())
            self._providers = [MeterProvider([reader]), LoggerProvider()]
            self._providers[1].add_log_record_processor(export.BatchLogRecordProcessor(_log_exporter.OTLPLogExporter()))
        self._meter, self._logger = self._providers[0].get_meter("tbmem"), self._providers[1].get_logger("tbmem")

    def alert(self, finding: Finding, event: str = "tbmem.finding") -> None:  # noqa: D102
        about = {"kind": finding.kind.value, "device": finding.device, "step": finding.last_step}
        attributes: Any = self._about | {f"tbmem.{name}": value for name, value in about.items()}
        level, text = _LEVELS[finding.severity], finding.message
        self._logger.emit(LogRecord(body=text, severity_number=level, attributes=attributes, event_name=event))

    def summarize(self, summary: Summary) -> None:  # noqa: D102
        super().summarize(summary)
        for verdict in summary.verdicts:
            self.alert(verdict, "tbmem.verdict")

    def close(self) -> None:  # noqa: D102
        for provider in self._providers:
            getattr(provider, "shutdown" if self._is_own else "force_flush", lambda: None)()

    def set_gauge(self, name: str, value: float, unit: str, **labels: str) -> None:  # noqa: D102
        attributes = self._about | {f"tbmem.{label}": text for label, text in labels.items()}
        self._meter.create_gauge(f"tbmem.{name}", _UNITS[unit]).set(value, attributes)
