"""Records of a leak's examination: the detector's Suspicion, the Evidence gathered on it, and the Conclusion."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Channel(str, Enum):
    """One series of bytes that is judged by itself."""

    ALLOCATED = "allocated"
    """Held when a step has ended."""
    PEAK = "peak"
    """Highest within a step."""
    RESERVED = "reserved"
    """Held by the allocator, cache included."""
    HOST = "host"
    """Resident memory of this process."""
    WORKERS = "workers"
    """Private memory of the child processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Growth that may be a leak; nobody is told before there is evidence or patience is at its end."""

    device: str
    rank: int = 0
    channel: Channel
    first_step: int
    """Where the growth began."""
    last_step: int
    """The step at which it was suspected, or last confirmed."""
    base: int
    """Floor before it began, in bytes."""
    level: int
    """Floor now, in bytes."""
    bytes_per_step: float
    """Growth rate over the judged steps."""
    judged_steps: int
    """Steps over which it has grown: those between ``first_step`` and ``last_step`` that were judged."""
    gap: int = 1
    """Steps between two rises: 1 where every step adds something."""
    from_the_start: bool = False
    """It was growing when the judging began: the growth is probably as old as the run."""

    @property
    def growth(self) -> int:
        """Growth in bytes."""
        return self.level - self.base


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """A line of somebody's source."""

    file: str
    """Full path."""
    line: int
    function: str = ""
    """Qualified name of the function around it, as Python has it; empty where it is not known."""
    text: str = ""
    """The line itself, stripped; empty where the source cannot be read."""

    def __str__(self) -> str:
        name = self.file.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{name}:{self.line}  {self.text}".rstrip()


class HolderKind(str, Enum):
    """What kind of thing holds memory."""

    LIST = "list"
    DICT = "dict"
    SET = "set"
    DEQUE = "deque"
    LRU_CACHE = "lru_cache"
    ITERATOR = "iterator"
    """An iterator that keeps what it has seen (``itertools.cycle``, ``itertools.tee``), or a generator."""
    HOOKS = "hooks"
    """The table of a module's or tensor's hooks."""
    GRAPH = "graph"
    """One tensor whose autograd graph gets longer with each step."""
    TENSOR = "tensor"
    """One tensor that is replaced by a larger one in each step."""
    CONTEXT = "context"
    """Autograd nodes that hold themselves: an attribute of ``ctx``, a graph of a gradient."""
    GARBAGE = "garbage"
    """Cycles of plain objects that only the collector frees."""
    OBJECTS = "objects"
    """Instances of one class, of which nothing larger is known."""


class Contents(str, Enum):
    """What the elements of a holder keep alive."""

    TENSORS = "tensors"
    """Tensors without a graph."""
    GRAPHS = "graphs"
    """Tensors that keep an autograd graph, and what it saved."""
    VIEWS = "views"
    """Tensors that are a small part of a large storage."""
    MODULES = "modules"
    HOOKS = "hooks"
    OBJECTS = "objects"
    """Anything without tensors: numbers, strings, arrays, dicts."""


class LineSource(str, Enum):
    """How a line is known."""

    SEEN = "seen"
    """The holder grew while this line ran."""
    READ = "read"
    """It is the line of the owner's source that adds to that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Something that grew with the steps and keeps memory."""

    kind: HolderKind
    name: str
    """As the user would write it: ``list 'losses' in train()``, ``Tracker.history``, ``lru_cache of mask_for()``."""
    type: str = ""
    """The type's own name where it tells more than the kind (``defaultdict``, ``MulBackward``)."""
    lines: tuple[CodeLine, ...] = ()
    """The lines that add to it, most frequent first; empty where none is known."""
    known_by: LineSource = LineSource.READ
    length: int = 0
    """Elements (nodes of a graph) now."""
    per_step: float = 0.0
    """Elements added per step."""
    bound: int | None = None
    """``maxlen`` or ``maxsize``, where it has one."""
    hits: int | None = None
    """How often a cache has answered, for an ``lru_cache``."""
    contents: Contents = Contents.OBJECTS
    bytes_per_element: int = 0
    """What one element alone keeps alive, its graph included."""
    grows_since: int = 0
    """First step in which it was seen growing."""

    @property
    def bytes_per_step(self) -> float:
        """What it takes in each step."""
        return self.bytes_per_element * self.per_step

    @property
    def steps_left(self) -> int | None:
        """Steps until a bounded holder is full; ``None`` without a bound."""
        if self.bound is None or self.per_step <= 0:
            return None
        return max(round((self.bound - self.length) / self.per_step), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place in the program that allocates what then survives."""

    stack: tuple[CodeLine, ...] = ()
    """The user's lines, innermost first; empty where no Python was running (autograd's own threads)."""
    operator: str = ""
    """The operator that allocated, ``aten::mm``."""
    in_backward: bool = False
    generations: int = 0
    """In how many of the watched steps it allocated something that is still alive."""
    steps: int = 0
    """Watched steps, the last one left out: what was born in it has had no time to die."""
    bytes_per_step: float = 0.0
    """Surviving bytes per watched step."""
    growing: bool = False
    """What it allocates becomes larger from step to step."""

    @property
    def share(self) -> float:
        """Share of the watched steps whose births are still alive: 1 for a leak, 0 for a busy workload."""
        return self.generations / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the watched steps showed."""

    first_step: int
    last_step: int
    holders: tuple[Holder, ...] = ()
    """Largest bytes per step first."""
    sites: tuple[Site, ...] | None = None
    """Most generations first; ``None`` where births could not be watched."""
    sizes_grow: float = 0.0
    """Share of the recurring allocations (by bytes) that got larger from step to step: 1 under a curriculum."""
    collector_on: bool = True
    """Whether Python's garbage collector runs by itself."""
    notes: tuple[str, ...] = ()
    """What could not be seen, and why: one sentence each."""
    seconds: float = 0.0
    """What looking cost outside the steps."""

    @property
    def watched_steps(self) -> int:
        """Steps under the lens."""
        return self.last_step - self.first_step


class Outcome(str, Enum):
    """What the evidence says about a suspicion."""

    CONFIRMED = "confirmed"
    DISMISSED = "dismissed"
    OPEN = "open"
    """Neither: patience decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What to make of a suspicion."""

    outcome: Outcome
    step: int
    """When it was drawn."""
    reason: str
    """One clause: why, in words."""
    cause: str = ""
    """The kind of leak in words: ``'a graph that was never freed'``."""
    advice: str = ""
    share: float | None = None
    """Part of the growth that the named holder or site explains, 0 to 1."""
    ends_at: int | None = None
    """Step at which a bounded holder will be full."""
    lasting: bool = False
    """The memory is of no use to anybody even when it stops growing (a cache that is never hit)."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Holder, line and numbers for the finding."""
