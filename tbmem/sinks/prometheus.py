"""Serves a run's memory to Prometheus: ``/metrics`` over HTTP, or a file for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server, write_to_textfile

from tbmem.model.finding import Finding
from tbmem.present.scalars import scalars_of
from tbmem.runtime.metric_sinks import MetricSink, Point, RunInfo, Summary


class PrometheusSink(MetricSink):
    """Gauges such as ``tbmem_memory_allocated_bytes{run, rank, device}``, and a counter of findings.

    Args:
        target: Port of ``/metrics`` (on rank ``n`` the ``n``-th after it), ``"address:port"``, or a file ``*.prom``.
        registry: A registry that the program serves itself, ``prometheus_client.REGISTRY``; ``target`` is not used.
    """

    name = "prometheus"

    def __init__(self, target: str | int = 9464, registry: CollectorRegistry | None = None) -> None:
        self._file = str(target).removesuffix(".prom") if str(target).endswith(".prom") else None
        address, _, port = str(target).rpartition(":")
        if self._file is None and not port.isdecimal():
            raise ValueError("takes a port, address:port, or a file that ends in .prom")
        self._address, self._port, self._given = address or "0.0.0.0", port, registry

    def open(self, run: RunInfo) -> None:  # noqa: D102
        self._labels = {"run": run.name, "rank": str(run.rank)}
        self._registry, self._metrics, self._server = self._given or CollectorRegistry(), dict[str, Any](), None
        self._path = self._file and f"{self._file}{f'-rank{run.rank}' if run.rank else ''}.prom"
        if self._file is None and self._given is None:
            self._server = start_http_server(int(self._port) + run.rank, self._address, self._registry)[0]

    def log(self, points: Sequence[Point]) -> None:  # noqa: D102
        for sample in points[-1].samples:
            self._metric(Gauge, "tbmem_step", device=sample.device).set(sample.step)
            for name, value, unit in scalars_of(sample):
                self._metric(Gauge, f"tbmem_memory_{name}", unit, device=sample.device).set(value)
        self._write()

    def alert(self, finding: Finding) -> None:  # noqa: D102
        about = {"device": finding.device, "kind": finding.kind.value, "severity": finding.severity.value}
        self._metric(Counter, "tbmem_findings", **about).inc()
        self._write()

    def summarize(self, summary: Summary) -> None:  # noqa: D102
        for verdict in summary.verdicts:
            self._metric(Gauge, "tbmem_verdict", device=verdict.device, verdict=verdict.kind.value).set(1)
        for peak in summary.peaks:
            self._metric(Gauge, "tbmem_memory_peak", "bytes", device=peak.device).set(peak.bytes)
        self._write()

    def close(self) -> None:  # noqa: D102
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        for metric in self._metrics.values() if self._given is not None else ():
            self._registry.unregister(metric)

    def _metric(self, type_: Any, name: str, unit: str = "", **labels: str) -> Any:
        labels = {**self._labels, **labels}
        if name not in self._metrics:
            text = f"{name.removeprefix('tbmem_').replace('_', ' ')} of a training run"
            self._metrics[name] = type_(name, text, list(labels), unit=unit, registry=self._registry)
        return self._metrics[name].labels(**labels)

    def _write(self) -> None:
        if self._path is not None:
            write_to_textfile(self._path, self._registry)
