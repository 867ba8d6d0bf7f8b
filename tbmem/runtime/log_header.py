"""A rank and what its monitor is told go in; the first record of the live log comes out."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from tbmem.config.schema import MonitorConfig
from tbmem.model.monitor_log import SCHEMA_VERSION, LogRecord
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
