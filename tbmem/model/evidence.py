"""Records of a leak investigation: the detector's Suspicion, the Evidence on it, and the Conclusion."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Channel(str, Enum):
    """A series of bytes that the detector evaluates on its own."""

    ALLOCATED = "allocated"
    PEAK = "peak"
    RESERVED = "reserved"
    HOST = "host"
    HEAP = "heap"  # what malloc has handed out, beside an accelerator
    WORKERS = "workers"  # private memory of the child processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Growth that may be a leak; reported once there is evidence, or the time to find some is over."""

    device: str
    rank: int = 0
    channel: Channel
    first_step: int
    """The step of the level from which the growth is counted."""
    last_step: int
    base: int
    level: int
    bytes_per_step: float
    judged_steps: int
    began: int
    """The first step that kept something, as far as it is known."""
    may_be_earlier: bool = False
    """Whether steps before it may have kept something too: the level rose there as well, or is not known."""
    gap: int = 1  # steps between two increases: 1 where every step adds something
    from_the_start: bool = False
    """Whether it was growing when the detector began: the growth is probably as old as the run."""
    at_once: int = 0
    """Bytes of the growth that came with a single rise, which the rate leaves out."""
    rises: int = 0
    """By so few rises nearly all of the growth came; 0 where it came by more."""

    @property
    def growth(self) -> int:
        """Growth in bytes."""
        return self.level - self.base

    @property
    def is_beside_accelerator(self) -> bool:
        """Whether the host's memory grows in a process that uses an accelerator."""
        return self.device != "cpu" and self.channel in (Channel.HOST, Channel.HEAP)

    @property
    def is_of_accelerator(self) -> bool:
        """Whether an accelerator's memory grows; beside one, that of the host may."""
        return self.device != "cpu" and self.channel not in (Channel.HOST, Channel.HEAP, Channel.WORKERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """A line of source code."""

    file: str
    line: int
    function: str = ""  # qualified name of its function; empty where unknown
    text: str = ""  # the stripped line; empty where the source cannot be read

    def __str__(self) -> str:
        name = self.file.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{name}:{self.line}  {self.text}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCode:
    """What DataLoader workers, whose objects cannot be seen, run."""

    methods: tuple[CodeLine, ...] = ()  # definitions of what they call, one for each data set
    additions: tuple[CodeLine, ...] = ()
    """Lines of the data sets that add to a container which a data set keeps, read from the source."""


class HolderKind(str, Enum):
    """Kind of object that holds memory."""

    LIST = "list"
    DICT = "dict"
    SET = "set"
    DEQUE = "deque"
    LRU_CACHE = "lru_cache"
    ITERATOR = "iterator"  # an iterator that stores its elements (itertools.cycle, itertools.tee), or a generator
    HOOKS = "hooks"
    GRAPH = "graph"  # one tensor whose autograd graph grows with each step
    TENSOR = "tensor"  # one tensor that is replaced by a larger one in each step
    CONTEXT = "context"  # autograd nodes in a reference cycle: an attribute of ctx, a graph of a gradient
    GARBAGE = "garbage"
    OBJECTS = "objects"  # instances of one class without a known container
    CLOSURES = "closures"  # functions made in another function, each with variables of its own
    CALLBACKS = "callbacks"  # functions that atexit calls when the program ends


class Contents(str, Enum):
    """Memory that the elements of a holder keep alive."""

    TENSORS = "tensors"
    GRAPHS = "graphs"
    VIEWS = "views"  # tensors that are a small part of a large storage
    MODULES = "modules"
    HOOKS = "hooks"
    OBJECTS = "objects"


class LineSource(str, Enum):
    """How a line is known."""

    SEEN = "seen"  # the holder grew while this line ran
    READ = "read"  # the source of the owner adds to that name in this line


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An object that grew with the steps and holds memory."""

    kind: HolderKind
    name: str  # as the user would write it: list 'losses' in train(), Tracker.history, lru_cache of mask_for()
    type: str = ""  # name of the type where it is more specific than the kind (defaultdict, MulBackward)
    lines: tuple[CodeLine, ...] = ()
    known_by: LineSource = LineSource.READ
    length: int = 0
    per_step: float = 0.0
    bound: int | None = None  # maxlen or maxsize
    hits: int | None = None  # cache hits of an lru_cache
    contents: Contents = Contents.OBJECTS
    element_type: str = ""  # type of the elements where all have one and it is no tensor's: tuple, Transition
    bytes_per_element: int = 0
    grows_since: int = 0
    is_emptied: bool = False
    """Whether it was seen to keep nothing from one step to another: it holds what a step needs, however much."""
    is_whole: bool = True
    """Whether ``length`` counts all of it; a graph may have more nodes than were followed."""

    @property
    def bytes_per_step(self) -> float:
        """Bytes added per step."""
        return self.bytes_per_element * self.per_step

    @property
    def steps_left(self) -> int | None:
        """Steps until a bounded holder is full; ``None`` without a bound."""
        if self.bound is None or self.per_step <= 0:
            return None
        return max(round((self.bound - self.length) / self.per_step), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAt:
    """What was running when memory was highest."""

    lines: tuple[CodeLine, ...] = ()
    """The user's lines, innermost first; empty if nothing is known."""
    operator: str = ""
    """The function or operator that the innermost Python code, also a library's, was calling; empty if not known."""
    is_evaluation: bool = False
    """Whether a module ran in eval mode that is trained before or after."""
    allocated: int | None = None
    """Bytes that were allocated then beyond those at the end of the step before; ``None`` where too few looks tell."""
    needed: int | None = None
    """The same beyond what steps usually allocate; ``None`` also where that is not known."""
    is_followed: bool = False
    """Whether looks at the step were never far apart, so that they can have missed a short peak only."""
    seconds: float = 0.0
    """Seconds that the step took at least: from the first look at it to the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """An allocation site whose allocations survive their step."""

    stack: tuple[CodeLine, ...] = ()  # the user's lines, innermost first; empty on threads without Python (autograd's)
    operator: str = ""
    in_backward: bool = False
    generations: int = 0
    steps: int = 0
    bytes_per_step: float = 0.0
    growing: bool = False  # whether its allocations become larger from step to step

    @property
    def share(self) -> float:
        """Share of the observed steps with surviving allocations: 1 for a leak."""
        return self.generations / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Results of the observed steps."""

    first_step: int
    last_step: int
    holders: tuple[Holder, ...] = ()
    sites: tuple[Site, ...] | None = None  # most generations first; None where survivors could not be tracked
    sizes_grow: float = 0.0
    """Share of the recurring allocations, by bytes, that grew from step to step: 1 under a curriculum."""
    collector_on: bool = True
    history_bytes: int = 0
    """Bytes of the host that torch's memory history may come to, where it is recorded all the time."""
    search_seconds: float = 0.0
    """Seconds of a processor that the search for holders would have taken, where that is more than it may; else 0."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0  # time spent outside of the steps

    @property
    def watched_steps(self) -> int:
        """Number of observed steps."""
        return self.last_step - self.first_step


class Outcome(str, Enum):
    """Result of a suspicion."""

    CONFIRMED = "confirmed"
    DISMISSED = "dismissed"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """Conclusion on a suspicion."""

    outcome: Outcome
    step: int
    reason: str
    cause: str = ""
    advice: str = ""
    share: float | None = None  # share of the growth that the named holder or site explains, 0 to 1
    explained: float | None = None  # bytes per step that it explains
    ends_at: int | None = None
    """Step at which what holds the memory is full."""
    room: int = 0
    """Bytes that it gains until then."""
    lasting: bool = False  # whether the memory is useless even when it stops growing (a cache without hits)
    evidence: dict[str, Any] = field(default_factory=dict)
    is_free_heap: bool = False  # whether malloc's counters told it, and nothing of the program was looked at
    is_working_set: bool = False  # whether what grows was seen to keep nothing from one step to the next
    lacks_survivors: bool = False  # whether no holder was found, and survivors could not be recorded

    def share_of(self, rate: float) -> float | None:
        """The share of growth at a rate, in bytes per step: the first one is of the few steps before the look."""
        return self.share if self.explained is None or rate <= 0 else min(self.explained / rate, 1.0)

    @property
    def is_out_of_sight(self) -> bool:
        """Whether a leak is confirmed by exclusion only: no object and no line was found."""
        is_found = self.evidence.get("holder") is not None or self.evidence.get("line") is not None
        return self.outcome is Outcome.CONFIRMED and not is_found
