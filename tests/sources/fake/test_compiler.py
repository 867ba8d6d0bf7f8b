"""Each test runs in a process of its own: a compiler that was loaded cannot be unloaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BEGIN = """
import sys, torch
from tbmem.sources.fake.compiler import load_compiler_later
load_compiler_later()
loaded = lambda: "torch._dynamo.eval_frame" in sys.modules
"""


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", _BEGIN + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_step_on_fake_tensors_does_not_load_it() -> None:
    # given fake tensors, a layer that is checkpointed, and an optimizer
    output = _run("""
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
with FakeTensorMode(allow_non_fake_inputs=True):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    # when a step runs, with a tensor that has a value
    (checkpoint(model, torch.zeros(2, 4), use_reentrant=False) * torch.tensor(2.0)).sum().backward()
    optimizer.step()
print(loaded())
""")
    # then nothing of the compiler was wanted
    assert output.strip() == "False"


@pytest.mark.parametrize(
    "code",
    [
        "import torch._dynamo.utils",
        "from torch._dynamo import OptimizedModule",
        "from torch._dynamo.source import AttrSource, ConstantSource as One; assert One.__module__ == AttrSource.__module__",  # noqa: E501
        "import torch._dynamo; torch._dynamo.reset()",
        "torch._dynamo.list_backends()",
        "import torch._dynamo.trace_rules as rules; rules.lookup(print)",
    ],
)
def test_whoever_wants_it_gets_it(code: str) -> None:
    assert _run(f"{code}\nprint(loaded(), torch._dynamo is sys.modules['torch._dynamo'])").strip() == "True True"


def test_it_compiles_once_it_is_loaded() -> None:
    # given an operator that was asked to stay as it is, before
    output = _run("""
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
optimizer.step()
assert not loaded()
# when something is compiled
seen = []
def backend(graph, inputs):
    seen.append(graph)
    return graph
result = torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.zeros(2))
print(len(seen), result.tolist(), type(sys.modules["torch._dynamo"]).__name__)
""")
    # then the real one did it
    assert output.strip() == "1 [1.0, 1.0] module"


def test_one_that_is_loaded_already_stays() -> None:
    output = _run("""
import torch._dynamo.eval_frame
before = sys.modules["torch._dynamo"]
load_compiler_later()
print(sys.modules["torch._dynamo"] is before)
""")
    assert output.strip() == "True"
