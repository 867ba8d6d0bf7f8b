"""A rendezvous without peers."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

from tbmem.rehearsal.one_rank import PeerlessStore, backend_without_peers


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("nccl", "nccl"),
        ("gloo", "fake"),
        ("cpu:gloo,cuda:nccl", "cpu:fake,cuda:nccl"),
        (None, "cpu:fake,cuda:nccl"),
        ("NCCL", "nccl"),
    ],
)
def test_backends(backend: str | None, expected: str) -> None:
    assert backend_without_peers(backend) == expected


def test_peers_have_written_what_is_asked_for() -> None:
    # given a store in which this rank alone writes
    store = PeerlessStore()
    store.set("mine", "1")

    # then its own values are there, those of others are as long as NCCL's unique id, and nothing is waited for
    assert store.get("mine") == b"1"
    assert len(store.get("0:1")) == 128
    store.wait(["never"], timedelta(seconds=1))
    assert store.check(["mine"])
    assert not store.check(["mine", "0:1"])
    assert (store.num_keys(), store.delete_key("mine"), store.delete_key("mine")) == (1, True, False)


def test_counters_and_exchanges() -> None:
    store = PeerlessStore()

    assert [store.add("count", 1), store.add("count", 2)] == [1, 3]
    assert store.compare_set("key", "", "first") == b"first"
    assert store.compare_set("key", "other", "second") == b"first"
    assert store.compare_set("key", "first", "second") == b"second"


_ITS_MESH_JOINS = """
from tbmem.rehearsal.one_rank import join_world
join_world(1, 4)
from torch.distributed.device_mesh import init_device_mesh
assert init_device_mesh("cpu", (4,)).get_local_rank() == 1
"""
_ONE_OF_512 = """
import gc
from tbmem.rehearsal.one_rank import join_world
join_world(300, 512)
import torch, torch.distributed as dist
dist.init_process_group("gloo")
gc.collect()
assert (dist.get_rank(), dist.get_world_size()) == (300, 512)
group = dist.new_group(list(range(0, 512, 2)), backend="gloo")
dist.barrier()
tensor = torch.ones(3)
dist.all_reduce(tensor, group=group)
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (64, 8), mesh_dim_names=("dp", "tp"))
assert (mesh["dp"].get_local_rank(), mesh["tp"].get_local_rank()) == (37, 4)
dist.destroy_process_group()
"""


def test_one_rank_of_512_waits_for_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", _ONE_OF_512], capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
