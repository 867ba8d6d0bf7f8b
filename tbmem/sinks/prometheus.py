"""Serves a run's memory to Prometheus: ``/metrics`` over HTTP, or a file for node_exporter's textfile collector."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server, write_to_textfile

from tbmem.model.finding import Finding
from tbmem.runtime.metric_sinks import RunInfo
from tbmem.sinks.gauges import GaugeSink

_LAST_PORT = 65535


class PrometheusSink(GaugeSink):
    """Gauges such as ``tbmem_memory_allocated_bytes{run, rank, device}``, and a counter of findings.

    Args:
        target: Port of ``/metrics`` (on rank ``n`` the ``n``-th after it), ``"address:port"``, or a file ``*.prom``.
        registry: A registry that the program serves itself, ``prometheus_client.REGISTRY``; ``target`` is not used.
    """

    name = "prometheus"

    def __init__(self, target: str | int = 9464, registry: CollectorRegistry | None = None) -> None:
        self._file = str(target).removesuffix(".prom") if str(target).endswith(".prom") else None
        address, _, port = str(target).rpartition(":")
        if self._file is None and not (port.isdecimal() and int(port) <= _LAST_PORT):
            raise ValueError(f"takes a port up to {_LAST_PORT}, address:port, or a file that ends in .prom")
        self._address = address or "0.0.0.0"  # nosec B104  # Prometheus asks from another machine
        self._port, self._given = port, registry

    def open(self, run: RunInfo) -> None:  # noqa: D102
        self._labels = {"run": run.name, "rank": str(run.rank)}
        self._registry, self._metrics, self._server = self._given or CollectorRegistry(), dict[str, Any](), None
        self._path = self._file and f"{self._file}{f'-rank{run.rank}' if run.rank else ''}.prom"
        if self._file is None and self._given is None:
            self._server = start_http_server(int(self._port) + run.rank, self._address, self._registry)[0]

    def alert(self, finding: Finding) -> None:  # noqa: D102
        about = {"device": finding.device, "kind": finding.kind.value, "severity": finding.severity.value}
        self._metric(Counter, "findings", "", about).inc()

    def flush(self) -> None:  # noqa: D102
        if self._path is not None:
            write_to_textfile(self._path, self._registry)

    def close(self) -> None:  # noqa: D102
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        for metric in self._metrics.values() if self._given is not None else ():
            self._registry.unregister(metric)

    def set_gauge(self, name: str, value: float, unit: str, **labels: str) -> None:  # noqa: D102
        self._metric(Gauge, name, unit, labels).set(value)

    def _metric(self, type_: Any, name: str, unit: str, labels: dict[str, str]) -> Any:
        labels, full = self._labels | labels, f"tbmem_{name.replace('.', '_')}"
        if name not in self._metrics:
            self._metrics[name] = type_(full, f"{name} of a training run", labels, unit=unit, registry=self._registry)
        return self._metrics[name].labels(**labels)
