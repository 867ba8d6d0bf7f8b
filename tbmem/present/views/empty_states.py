"""What a screen says where there is nothing to draw, and how to get data."""

from __future__ import annotations

from tbmem.present.views.run_schema import Empty

_CALLBACK = [
    "from tbmem import MemoryCallback",
    "",
    "with MemoryCallback() as memory:",
    "    for batch in loader:",
    "        ...                # the training step",
    "        memory.step()",
]

NO_RUNS: Empty = {
    "title": "No memory data in this log folder yet",
    "text": "Add the callback to a training loop, or run a script under tbmem; the tab is updated while the run"
    " trains.",
    "commands": ["tbmem demo --logdir runs", "tbmem run --logdir runs train.py", "", *_CALLBACK],
}
NO_LOGDIR: Empty = {
    "title": "TensorBoard was started without a log folder",
    "text": "Start it on the folder that the runs are written to.",
    "commands": ["tensorboard --logdir runs"],
}
NO_LOG: Empty = {
    "title": "This run has recordings, but no live log",
    "text": "Verdicts and the series over the steps come from the live monitor. See Timeline and Peak for recordings.",
    "commands": _CALLBACK,
}
NO_SAMPLES: Empty = {
    "title": "No step has been logged yet",
    "text": "The first steps appear here a few seconds after they end.",
    "commands": [],
}
ONE_STEP: Empty = {
    "title": "There are no two whole steps in this recording",
    "text": "Steps are known from the profiler's windows, from MemoryCallback, or by the optimizer's phases in stacks.",
    "commands": ["profiling:", "  active: 3"],
}
NO_RECORDINGS: Empty = {
    "title": "This run has no recording",
    "text": "Timelines come from the profiler's windows or from memory snapshots.",
    "commands": ["profiling:", "  enabled: true", "  wait: 1", "  warmup: 2", "  active: 3", "  repeat: 1"],
}
NOTHING_RECORDED: Empty = {
    "title": "No allocation of this device was recorded",
    "text": "Its memory was allocated before the recording began; see Peak and Segments.",
    "commands": ["torch.cuda.memory._record_memory_history()", "tbmem.record(...)"],
}
NO_SEGMENTS: Empty = {
    "title": "This recording does not say how the allocator's memory is laid out",
    "text": "Segments and blocks are in memory snapshots of an accelerator; traces and recordings of the CPU have"
    " none.",
    "commands": ["snapshot:", "  enabled: true", "", "tbmem.record(...)   # around any code on a GPU"],
}
NO_OPERATORS: Empty = {
    "title": "This recording does not say which operators ran",
    "text": "Operators are in the profiler's traces, recorded with profile_memory=True.",
    "commands": ["profiling:", "  enabled: true"],
}
ONE_RANK: Empty = {
    "title": "Only one rank has written",
    "text": "With all ranks logging, ranks that differ are named here.",
    "commands": ["run:", "  ranks: all"],
}
NOTHING_TO_COMPARE: Empty = {
    "title": "These two have nothing in common",
    "text": "Neither their logs nor their recordings have a device in common.",
    "commands": ["tbmem compare BEFORE AFTER"],
}
NO_ESTIMATE: Empty = {
    "title": "There is no estimate",
    "text": "An estimate can be shown over a measurement: write it into the log folder (a report: into the run's).",
    "commands": ["tbmem estimate MODEL --batch ... --variants --out LOGDIR/estimate"],
}
