"""A tensor's ends are read where they can be; what cannot be read ends no process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from tbmem.sources.retainers import tensor_edges
from tbmem.sources.retainers.tensor_edges import edges_of

UNREADABLE = {
    "a storage that was resized to nothing": """
        tensor = torch.arange(4096.0)
        tensor.untyped_storage().resize_(0)
    """,
    "a storage that was made smaller": """
        tensor = torch.arange(1 << 20)
        tensor.untyped_storage().resize_(64)
    """,
    "protected pages": """
        pages = mmap.mmap(-1, 1 << 16)
        pages.write(bytes(range(256)) * 256)
        tensor = torch.frombuffer(pages, dtype=torch.uint8)
        libc = ctypes.CDLL(None)
        assert libc.mprotect(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(1 << 16), 0) == 0
    """,
    "pages that were unmapped": """
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        address = libc.mmap(None, ctypes.c_size_t(1 << 16), 3, 0x22, -1, 0)
        pages = (ctypes.c_char * (1 << 16)).from_address(address)
        tensor = torch.frombuffer(pages, dtype=torch.uint8)
        assert libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(1 << 16)) == 0
    """,
    "a truncated file of torch's": """
        open(path, "wb").write(bytes(range(256)) * 256)
        tensor = torch.from_file(path, shared=True, size=1 << 16, dtype=torch.uint8)
        open(path, "r+b").truncate(0)
    """,
    "a truncated file of numpy's": """
        open(path, "wb").write(bytes(range(256)) * 256)
        tensor = torch.from_numpy(numpy.memmap(path, numpy.uint8, "r+"))
        open(path, "r+b").truncate(0)
    """,
    "a graph that was freed": """
        weight = torch.ones(1000, requires_grad=True)
        tensor = weight * weight
        tensor.sum().backward()
    """,
}
PROGRAM = """
import ctypes, json, mmap, os, sys
import numpy, torch
from tbmem.sources.retainers.search import RetainerSearch
from tbmem.sources.retainers.tensor_edges import edges_of

path = sys.argv[1]


def search(tensor):
    search, kept = RetainerSearch(), []
    for step in range(4):
        kept.append(tensor)
        search.look(step, sys._getframe())
    search.result(sys._getframe())
    search.close()
    return edges_of(tensor) != (b"", b"")


codes = {}
for name, code in json.loads(sys.argv[2]).items():
    pid = os.fork()
    if pid == 0:
        exec(code)
        os._exit(search(tensor))
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps(codes))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is read")
def test_a_search_survives_memory_that_cannot_be_read(tmp_path: Path) -> None:
    # given tensors whose data cannot be read, each in a process of its own
    cases = json.dumps({name: textwrap.dedent(code) for name, code in UNREADABLE.items()})
    # when they are searched for holders
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), cases]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    # then each process ends by itself, with nothing read
    assert json.loads(ended.stdout) == dict.fromkeys(UNREADABLE, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is read")
def test_the_ends_are_read_of_a_part_of_a_storage_too() -> None:
    # given
    data = torch.arange(256, dtype=torch.uint8).repeat(4)
    # when
    first, last = edges_of(data[64:960])
    # then
    assert first == bytes(range(64, 128))
    assert last == bytes(range(128, 192))


def test_ends_that_say_nothing_are_left_out() -> None:
    assert edges_of(torch.zeros(1000)) == (b"", b"")
    assert edges_of(torch.arange(16, dtype=torch.uint8)) == (b"", b"")
    assert edges_of(torch.zeros(1000, device="meta")) == (b"", b"")


def test_nothing_is_read_where_the_kernel_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_edges, "_find_reader", lambda: None)

    assert edges_of(torch.arange(1000)) == (b"", b"")
