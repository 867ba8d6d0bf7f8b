"""Ownership of a run folder: one run, or one job with all of its ranks, to each folder."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import psutil

from tbmem.model import files
from tbmem.runtime.ranks import Rank

_JOB_VARIABLES = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "TORCHELASTIC_RUN_ID")
"""Variables that hold the same word on every rank of a job and another one for every job."""
_LAUNCH_VARIABLES = (
    *("TORCHELASTIC_RESTART_COUNT", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"),
)
"""Variables that tell one launch of a job from the next, and are the same on every rank."""
_NO_JOB = ("", "none")
"""What torchrun sets where it was given no id."""
_LOOKS, _BETWEEN_LOOKS = 20, 0.05
"""How often, and how many seconds apart, an owner is read that has not written its name yet."""


def claim_folder(logdir: Path, name: str, rank: Rank) -> Path:
    """The run's folder: ``name``, or ``name_2``, ``name_3`` ... where an earlier run has that.

    The first process that makes the owner's file has the folder, whoever starts at the same moment. Ranks of a job find
    the owner that all of them are, without asking each other; and because a rank takes its place in a folder once,
    those of a second run of the same job go on to the next number, each by itself.

    Args:
        logdir: Folder that holds all runs.
        name: As it was asked for.
        rank: This process's rank.

    Raises:
        OSError: The folder cannot be made or written.
    """
    owner = launch_of(os.environ) if rank.world_size > 1 else uuid.uuid4().hex
    for number in count(1):
        folder = logdir / (f"{name}_{number}" if number > 1 else name)
        if _is_ours(folder, owner) and (rank.world_size == 1 or _make(folder / files.owner_name(rank.rank), owner)):
            return folder
    raise AssertionError  # numbers do not end


def _is_ours(folder: Path, owner: str) -> bool:
    place = folder / files.owner_name()
    if not place.exists() and _has_log(folder):
        return False  # of a monitor that was given its folder, or of an earlier version
    place.parent.mkdir(parents=True, exist_ok=True)
    return _make(place, owner) or _read(place) == owner


def _has_log(folder: Path) -> bool:
    ranks = folder.glob(f"{files.rank_folder('*')}/{files.MONITOR_LOG}")
    return (folder / files.MONITOR_LOG).exists() or any(True for _ in ranks)


def _make(place: Path, text: str) -> bool:
    """Make a file that nobody has made before; ``False`` if somebody has."""
    try:
        with open(place, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _read(place: Path) -> str:
    """Who the owner is; it may be writing its name just now."""
    for _ in range(_LOOKS):
        text = place.read_text(encoding="utf-8", errors="replace")
        if text:
            return text
        time.sleep(_BETWEEN_LOOKS)
    return ""


def launch_of(environment: Mapping[str, str]) -> str:
    """What is the same on every rank of this launch of a job, and another for every other launch.

    Args:
        environment: Variables of the launcher or the scheduler.
    """
    words = [job_name(environment), *(environment.get(variable, "") for variable in _LAUNCH_VARIABLES)]
    launcher = _launcher() if _on_one_machine(environment) else None
    return " ".join((*words, str(launcher.pid) if launcher is not None else "")).strip()


def job_name(environment: Mapping[str, str]) -> str:
    """A name that is the same on every rank of a job.

    Ranks start at slightly different times, and asking each other would be a collective that can hang. On one
    machine it is the moment at which the launcher started, across machines the job's id.

    Args:
        environment: Variables of the launcher or the scheduler.
    """
    for variable in _JOB_VARIABLES:
        if not _on_one_machine(environment) and environment.get(variable, "").lower() not in _NO_JOB:
            return f"job-{environment[variable]}"
    launcher = _launcher()
    return time_name(launcher.create_time() if launcher is not None else time.time())


def _launcher() -> psutil.Process | None:
    """The process that started all ranks of this machine: shells between it and a rank belong to that rank."""
    process = psutil.Process().parent()
    try:
        while process is not None and "LOCAL_RANK" in process.environ():
            process = process.parent()
    except (psutil.Error, OSError):
        pass  # somebody else's: none of our shells
    return process


def _on_one_machine(environment: Mapping[str, str]) -> bool:
    local = environment.get("LOCAL_WORLD_SIZE")
    return local is not None and local == environment.get("WORLD_SIZE")


def time_name(moment: float) -> str:
    """Name of a run that began at a Unix time, in seconds."""
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(moment))
