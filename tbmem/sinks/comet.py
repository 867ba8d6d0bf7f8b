"""Logs into the program's experiment of Comet, or into an experiment of tbmem's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import comet_ml

from tbmem.model.finding import Finding
from tbmem.runtime.metric_sinks import MetricSink, Point, RunInfo, Summary

_SILENT: dict[str, Any] = {
    **dict.fromkeys(("log_code", "log_graph", "parse_args", "auto_output_logging", "auto_param_logging"), False),
    **dict.fromkeys(("auto_metric_logging", "log_env_details", "log_git_metadata", "log_git_patch"), False),
    "display_summary_level": 0,
}
"""An experiment of tbmem's own has only tbmem's figures."""


class CometSink(MetricSink):
    """Scalars as metrics, findings as tags and texts, verdict and peak under "other"."""

    name = "comet"

    def join(self) -> bool:  # noqa: D102
        running = comet_ml.get_running_experiment()  # also one that has ended
        self._experiment: Any = None if running is None or running.ended else running
        return self._experiment is not None

    def open(self, run: RunInfo) -> None:
        """Begin an experiment if the program has none; offline, in the run folder, if no key is configured."""
        self._is_own = self._experiment is None
        if self._is_own:
            has_key = comet_ml.get_config("comet.api_key")
            folder = {} if has_key or run.folder is None else {"offline_directory": str(run.folder)}
            self._experiment = (comet_ml.Experiment if has_key else comet_ml.OfflineExperiment)(**_SILENT, **folder)
            self._experiment.set_name(run.label)

    def log(self, points: Sequence[Point]) -> None:  # noqa: D102
        for point in points:
            before = self._experiment.curr_step
            self._experiment.log_metrics(dict(point.values), step=point.step, include_context=False)
            if self._experiment.curr_step == point.step:
                self._experiment.curr_step = before  # metrics that the program logs without a step keep theirs

    def alert(self, finding: Finding) -> None:  # noqa: D102
        self._experiment.add_tag(f"memory {finding.kind.value}")
        self._experiment.log_text(finding.message, metadata=finding.to_dict())  # a step would become the program's

    def summarize(self, summary: Summary) -> None:  # noqa: D102
        self._experiment.log_others(dict(summary.values))

    def close(self) -> None:  # noqa: D102
        if self._is_own:
            self._experiment.end()
