"""What limits a process: the machine, its own limits, its control group."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

from tbmem.sources.counters.memory_limits import host_state
from tbmem.units import MIB


def test_a_container_that_is_nearly_full_is_the_tightest(tmp_path: Path) -> None:
    # given a control group with a limit of 64 MiB, of which 60 are used
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    for name, text in (("memory.max", str(64 * MIB)), ("memory.current", str(60 * MIB)), ("memory.stat", "")):
        (group / name).write_text(text)

    state = host_state(tmp_path)

    assert (state.limits[0].name, state.limits[0].total, state.limits[0].free) == ("cgroup", 64 * MIB, 4 * MIB)
    assert [limit.free for limit in state.limits] == sorted(limit.free for limit in state.limits)
    assert state.resident > 0


def test_without_limits_it_is_the_machine(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    assert [limit.name for limit in host_state(tmp_path).limits] == ["the machine"]


def test_the_limit_of_the_address_space(tmp_path: Path) -> None:
    program = f"""
import resource
from pathlib import Path
from tbmem.sources.counters.memory_limits import host_state
resource.setrlimit(resource.RLIMIT_AS, ({1 << 33}, {1 << 33}))
limit = next(one for one in host_state(Path({str(tmp_path)!r})).limits if one.name == "RLIMIT_AS")
print(limit.total, 0 < limit.free < limit.total)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == [str(1 << 33), "True"]


def test_the_end_of_the_addresses_is_what_a_leak_is_measured_against(tmp_path: Path) -> None:
    # given a training that leaks 2 MiB a step, where ulimit -v leaves it room for a thousand steps more
    script = tmp_path / "leaks.py"
    script.write_text(
        """
import resource, torch
from tbmem import MemoryMonitor
used = 1024 * int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmSize")))
resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 30), used + (3 << 30)))
monitor, kept = MemoryMonitor(folder="runs"), []
with monitor:
    for _ in range(420):
        kept.append(torch.empty(2 << 20, dtype=torch.uint8))
        monitor.step()
"""
    )
    # when
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    # then
    assert "memory ends at RLIMIT_AS, before the machine's does" in done.stderr
    steps = re.findall(r"out of memory in ~([\d\s]+) steps", done.stderr)
    assert steps, done.stderr
    assert 1000 <= int("".join(steps[-1].split())) <= 1600
