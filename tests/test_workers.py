"""A child process under a running monitor: what only the child shows ends up in the log and in TensorBoard."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tbmem.model.monitor_log import read_monitor_log
from tbmem.model.sample_row import SampleRow

GIB = 1 << 30
MIB = 1 << 20
LOG = "plugins/tbmem/monitor.jsonl"


def _train_with_a_forked_worker(folder: Path) -> list[SampleRow]:
    """Rows of a training whose worker reads through a list that it has from its parent, in 1.5 seconds."""
    program = f"""
        import os, sys, time
        meta = [str(number).zfill(64) for number in range(300_000)]
        (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(our_out)
            position = 0
            while os.read(their_in, 1):
                for item in meta[position : position + 2000]:
                    pass
                position += 2000
                os.write(their_out, b".")
            os._exit(0)
        from tbmem import MemoryMonitor
        with MemoryMonitor(folder={str(folder)!r}, console=False, devices="cpu") as monitor:
            for step in range(150):
                os.write(our_out, b".")
                os.read(our_in, 1)
                time.sleep(0.01)
                monitor.step()
            os.close(our_out)
            os.waitpid(pid, 0)
            time.sleep(1.5)
            monitor.step()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)
    return read_monitor_log(folder / LOG).rows


@pytest.mark.slow
def test_copy_on_write_shows_in_the_workers_private_memory_alone(tmp_path: Path) -> None:
    # given / when
    rows = _train_with_a_forked_worker(tmp_path)
    *during, after = [row.sample for row in rows]
    # then short runs see it soon, it grows by tens of MiB, and nothing else does
    known = [sample for sample in during if sample.workers_private is not None]
    if not known:
        pytest.skip("this kernel does not tell private memory")
    assert known[0].step <= 30
    private = [sample.workers_private or 0 for sample in known]
    resident = [sample.workers_rss or 0 for sample in known]
    assert private[0] < private[len(private) // 2] < private[-1]
    assert private[-1] - private[0] > 10 * MIB
    assert resident[-1] - resident[0] < 3 * MIB
    # and the worker's end is its figures' end
    assert (after.workers_rss, after.workers_private) == (0, 0)
    assert after.host_private is not None
    assert 0 < after.host_private < (after.host_rss or 0)
    # and TensorBoard has it
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Scalars("memory/workers_private")[-2].value == pytest.approx(private[-1] / GIB)
    assert events.Scalars("memory/host_private")[-1].value == pytest.approx(after.host_private / GIB)
