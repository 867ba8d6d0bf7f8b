"""Stacks of a snapshot, each once."""

from __future__ import annotations

from tbmem.model.stacks import Frame
from tbmem.sources.snapshot.stacks import SnapshotStacks


def test_equal_stacks_have_one_number() -> None:
    frame = {"filename": "a.py", "line": 3, "name": "step"}
    stacks = SnapshotStacks()

    assert stacks.numbers([[frame], None, [dict(frame)], []]) == [0, -1, 0, -1]
    assert stacks.table().frames == (Frame("a.py", 3, "step"),)


def test_a_compiled_frame_has_its_node_and_the_code_that_it_was_generated_from() -> None:
    # given a frame as torch.cuda.memory._snapshot(augment_with_fx_traces=True) has it
    trace = (
        '  File "train.py", line 9, in step\n    model(x)\n  File "net.py", line 4, in forward\n    b = self.relu(a)\n'
    )
    node = {"fx_node_op": "call_function", "fx_node_name": "relu", "fx_node_target": "aten.relu.default"}
    compiled = {"filename": "fx_generated_0.py", "line": 7, "name": "forward", **node, "fx_original_trace": trace}
    stacks = SnapshotStacks()

    stacks.numbers([[compiled, {"filename": "train.py", "line": 1, "name": "<module>"}]])

    assert stacks.table().frames == (
        Frame("fx_generated_0.py", 7, "forward (FX node relu: aten.relu.default)"),
        Frame("net.py", 4, "forward"),
        Frame("train.py", 9, "step"),
        Frame("train.py", 1, "<module>"),
    )
