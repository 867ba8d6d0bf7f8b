"""The first and the last record of a live log."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from tbmem.config.schema import MonitorConfig
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import SCHEMA_VERSION, LogRecord
from tbmem.runtime.oom import ran_out_of_memory
from tbmem.runtime.ranks import Rank
from tbmem.sources.processes import this_process


def log_header(rank: Rank, config: MonitorConfig, about: Mapping[str, Any]) -> LogRecord:
    """Who writes the log, where, from when on, and with which settings.

    Args:
        rank: The process's rank.
        config: What is read, and how often.
        about: What else the header shall hold.
    """
    return {
        "type": "header",
        "schema": SCHEMA_VERSION,
        "started": time.time(),
        "rank": rank.rank,
        "world_size": rank.world_size,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process": this_process(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "monitor": asdict(config),
        **about,
    }


def log_end(
    steps: int, verdicts: Sequence[Finding], error: BaseException | None, findings: Sequence[Finding]
) -> LogRecord:
    """How the run ended.

    Args:
        steps: How many there were.
        verdicts: One for each device.
        error: The exception that ended it, if one did.
        findings: Of the whole run.
    """
    return {
        "type": "end",
        "time": time.time(),
        "steps": steps,
        "verdicts": [verdict.to_dict() for verdict in verdicts],
        "exception": None if error is None else type(error).__name__,
        "out_of_memory": ran_out_of_memory(error, findings),
    }
