"""A run folder's layout: host, rank and time go in, the names of files come out, and back."""

from __future__ import annotations

import re

PLUGIN_FOLDER = "plugins/tbmem"
"""TensorBoard's convention for the files of a plugin, relative to the run folder."""
MONITOR_LOG = f"{PLUGIN_FOLDER}/monitor.jsonl"
"""Live log: header, samples, findings, windows."""
TRACE_SUFFIX = ".pt.trace.json.gz"
"""What torch-tb-profiler looks for."""
SNAPSHOT_SUFFIX = ".snapshot.pickle"
"""Memory snapshot."""
SNAPSHOT_PROTOCOL = 4
"""Of pickle: the newest that the viewer at pytorch.org/memory_viz reads (pytorch#183842)."""
TIMELINE_SUFFIX = ".tbmem.npz"
"""An allocation timeline: what an estimate writes, and what any recording can be kept as."""
ADDRESS_BOOK_SUFFIX = ".addresses.npz"
"""Address book, beside the trace or snapshot of the same stem."""
PARTIAL_SUFFIX = ".partial"
"""End of the name that a file has until it is complete: no viewer takes it for the file itself."""


def worker_name(host: str, rank: int) -> str:
    """Name of one process of a run: ``'node7_rank3'``."""
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', host) or 'host'}_rank{rank}"


def trace_name(worker: str, time_ns: int) -> str:
    """``<worker>.<ns>.pt.trace.json.gz``; the number orders the windows of a worker."""
    return f"{worker}.{time_ns}{TRACE_SUFFIX}"


def snapshot_name(worker: str, label: str | int) -> str:
    """``<worker>.<label>.snapshot.pickle``; the label is the window's number or the user's word."""
    return f"{worker}.{re.sub(r'[^A-Za-z0-9_-]+', '-', str(label)) or 'snapshot'}{SNAPSHOT_SUFFIX}"


def address_book_name(stem: str) -> str:
    """Name of the address book that belongs to the trace or snapshot ``stem``."""
    for suffix in (TRACE_SUFFIX, TRACE_SUFFIX.removesuffix(".gz"), SNAPSHOT_SUFFIX):
        stem = stem.removesuffix(suffix)
    return stem + ADDRESS_BOOK_SUFFIX


def evidence_name(number: int) -> str:
    """``plugins/tbmem/evidence-<number>.json``, numbered by suspicion."""
    return f"{PLUGIN_FOLDER}/evidence-{number}.json"


def shortage_name(worker: str, word: str) -> str:
    """``<worker>.<word>.txt``: the report on memory that ran out (``'oom'``) or nearly did (``'near-limit'``)."""
    return f"{worker}.{word}.txt"


def owner_name(rank: int | None = None) -> str:
    """``plugins/tbmem/owner``: which run, or launch of a job, has the folder; with a rank that this one takes part."""
    return f"{PLUGIN_FOLDER}/owner" + (f".rank{rank}" if rank is not None else "")


def rank_folder(rank: int | str) -> str:
    """Sub-folder of a rank, where several ranks write: ``'rank3'``; of ``'*'`` the pattern of them all."""
    return f"rank{rank}"
