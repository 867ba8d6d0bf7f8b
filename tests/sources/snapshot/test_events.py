"""Events of a snapshot."""

from __future__ import annotations

from tbmem.model.stacks import Frame
from tbmem.model.timeline_tables import MarkKind
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tests.sources.snapshot.snapshots import FRAMES, block, event, segment, snapshot


def test_out_of_memory_is_a_mark() -> None:
    # given an OOM event, which has no address but what the device had free, and an action of the future
    oom = {"action": "oom", "device_free": 3, "size": 999, "stream": 0, "time_us": 5, "frames": FRAMES}

    timeline = timeline_of_snapshot(
        snapshot(segment(0, block(512, 500)), trace=[oom, event("sneeze"), event("snapshot")])
    )

    assert timeline.marks.kind.tolist() == [MarkKind.OOM, MarkKind.OTHER, MarkKind.SNAPSHOT]
    assert timeline.marks.bytes.tolist()[0] == 999
    assert timeline.marks.device_free_bytes.tolist()[0] == 3
    assert timeline.devices[0].ooms == 1


def test_contexts_are_kept_where_they_say_something() -> None:
    trace = [
        event("alloc", 0, 500, compile_context="0/1", user_metadata="mine"),
        event("alloc", 512, 300, compile_context="N/A", user_metadata=""),
    ]

    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500), block(512, 300)), trace=trace))

    assert timeline.contexts == ("mine; 0/1",)
    assert timeline.rows.context.tolist() == [0, -1]


def test_an_allocation_of_the_backward_pass_has_the_stack_of_its_forward_pass() -> None:
    # given an event as torch 2.14.1 writes it in its anomaly mode: the lines of a traceback
    forward = [
        '  File "train.py", line 9, in <module>\n    step(x)\n',
        '  File "net.py", line 4, in forward\n    return x @ w\n',
    ]
    trace = [event("alloc", 0, 500, forward_frames=forward), event("alloc", 512, 300)]

    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500), block(512, 300)), trace=trace))

    first, second = timeline.rows.forward_stack.tolist()
    assert timeline.stacks.of(first) == (Frame("net.py", 4, "forward"), Frame("train.py", 9, "<module>"))
    assert second == -1
