"""Assigns a category to each allocation: from an address book, its lifetime, or rules on words in its stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tbmem.analysis.recordings.address_join import join_book
from tbmem.analysis.recordings.inferred_categories import infer_older
from tbmem.analysis.recordings.result import Labels
from tbmem.analysis.recordings.weights_in_trace import with_weights
from tbmem.analysis.source_lines import end_of_path
from tbmem.errors import ConfigError
from tbmem.model.address_book import AddressBook
from tbmem.model.category import Basis, Category, Phase
from tbmem.model.columns import I64, Bools
from tbmem.model.stacks import Frame
from tbmem.model.timeline import AllocationTimeline

UNKNOWN = Category.UNKNOWN.name
KV_CACHE = "KV cache"
"""Label of keys and values that attention keeps of earlier tokens (transformers' ``cache_utils.py``, vLLM's caches)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryRule:
    """A label, and words that imply it."""

    label: str
    """``'Attention'``, or the name of torch's category."""
    words: tuple[str, ...]
    """Lower-case regular expressions, searched in ends of paths, functions, operators and modules."""
    category: Category | None = None
    """torch's category; ``None`` if it depends on the phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryTable:
    """Rules in order of precedence; the first that matches any frame applies."""

    rules: tuple[CategoryRule, ...]

    def extended(self, data: Iterable[Mapping[str, Any]]) -> CategoryTable:
        """The table after the user's rules, as in YAML: ``[{label: Vision, words: [patch_embed], category: INPUT}]``.

        Raises:
            ConfigError: A rule has no label or words, or an unknown category.
        """
        return CategoryTable(rules=(*(_rule(item) for item in data), *self.rules))


_LOADING = ("from_pretrained", "load_state_dict", "load_checkpoint", "reset_parameters", r"\b_apply\b", "init_weight")
_COLLECTIVES = ("nccl", "all_to_all", "alltoall", "all_reduce", "allreduce", "deep_?ep", "c10d", "functional_coll")
_FSDP = ("fsdp", "fully_shard", "flat_param", "all_gather", "allgather", "reduce_scatter")
_OPTIMIZERS = (r"\boptim/", r"\boptimizers?\b", r"\badam(w|_\w+)?\b", r"_init_group", r"\bmuon\b", "adafactor")
_RULES: tuple[tuple[str, Category | None, tuple[str, ...]], ...] = (
    ("COMMUNICATION", Category.COMMUNICATION, _COLLECTIVES),
    ("FSDP", Category.COMMUNICATION, _FSDP),
    ("OPTIMIZER_STATE", Category.OPTIMIZER_STATE, _OPTIMIZERS),
    ("GRADIENT", Category.GRADIENT, ("autograd::engine", "run_backward", "accumulategrad", r"backward0\b")),
    ("PARAMETER", Category.PARAMETER, _LOADING),
    ("Expert/MoE", None, (r"\bmoe", r"moe\b", "expert", "router", "grouped_gemm", "grouped_mm")),
    (KV_CACHE, Category.BUFFER, ("kv_?cache", "cache_utils", "past_key_value", "cache_engine")),
    ("Attention", None, ("attention", r"attn", r"sdpa", "flash_", "rotary", r"\brope")),
    ("Embedding", None, ("embedding", r"embed_tokens", r"\bwte\b")),
    ("Normalization", None, ("layer_?norm", "rms_?norm", "batch_?norm", "group_?norm")),
    ("Loss", None, ("cross_entropy", "nll_loss", "log_softmax", r"loss\b")),
    ("Convolution", None, ("convolution", r"\bconv", "cudnn_conv")),
    ("Linear/MatMul", None, ("linear", "matmul", r"mm\b", "gemm", r"\bmlp", "feed_?forward", r"\bffn")),
    ("INPUT", Category.INPUT, ("dataload", "collate", "get_batch", "pin_memory")),
)
DEFAULT_TABLE = CategoryTable(
    rules=tuple(CategoryRule(label=label, category=category, words=words) for label, category, words in _RULES)
)


def rule_of_rows(timeline: AllocationTimeline, table: CategoryTable) -> I64:
    """Number of the first rule that matches each allocation; ``len(table.rules)`` for none."""
    rows, stacks, none = timeline.rows, timeline.stacks, len(table.rules)
    words = [(number, word, _literal(word)) for number, rule in enumerate(table.rules) for word in rule.words]

    @cache
    def first(text: str) -> int:
        for number, word, literal in words:
            if literal in text and (literal == word or re.search(word, text)):
                return number
        return none

    of_stack = np.full(len(stacks) + 1, none, np.int64)
    if len(stacks.frame):
        of_frame = np.array([first(_text(frame)) for frame in stacks.frames], np.int64)
        of_stack[:-1] = np.minimum.reduceat(of_frame[stacks.frame], stacks.offset[:-1])
    rule_of_row = of_stack[rows.stack]
    for names, column in ((timeline.operators, rows.operator), (timeline.modules, rows.module)):
        of_name = np.array([*(first(name.lower()) for name in names), none], np.int64)
        rule_of_row = np.minimum(rule_of_row, of_name[column])
    return rule_of_row


def _literal(word: str) -> str:
    """Literal that every match of a word contains, tested before the regular expression; empty if it is not simple."""
    pieces = re.split(r".[?*]", word.replace(r"\b", ""))
    return "" if any(set(r"\^$.|?*+()[]{}") & set(piece) for piece in pieces) else max(pieces, key=len)


def _text(frame: Frame) -> str:
    """Function and end of the path; the folders above and the parameters of C++ functions are left out."""
    function = frame.function
    if "::" in function:
        function = function.replace("(anonymous namespace)", "").partition("(")[0]
    return f"{end_of_path(frame.file)} {function}".lower()


def _rule(data: Mapping[str, Any]) -> CategoryRule:
    label, words, category = data.get("label"), data.get("words"), data.get("category")
    if not isinstance(label, str) or not label:
        raise ConfigError(f"categories: a rule has no label: {dict(data)}")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise ConfigError(f"categories: {label}: words must be a list of texts to search for")
    if category is not None and (not isinstance(category, str) or category not in Category.__members__):
        raise ConfigError(f"categories: {label}: category {category!r} is none of {', '.join(Category.__members__)}")
    try:
        re.compile("|".join(words))
    except re.error as error:
        raise ConfigError(f"categories: {label}: words are regular expressions, and one is wrong: {error}") from error
    return CategoryRule(
        label=label,
        words=tuple(word.lower() for word in words),
        category=None if category is None else Category[category],
    )


_OF_PHASE = {
    Phase.FORWARD: Category.ACTIVATION,
    Phase.BACKWARD: Category.GRADIENT,
    Phase.OPTIMIZER: Category.OPTIMIZER_STATE,
}


def categorize(
    timeline: AllocationTimeline, book: AddressBook | None, table: CategoryTable | None
) -> tuple[AllocationTimeline, Labels]:
    """Assign categories, and the label of each row: by the address book on its devices, by rules on all others."""
    in_book = np.zeros(len(timeline.devices), np.bool_)
    if book is not None and len(book):
        timeline = join_book(timeline, book)
        in_book = np.array([device.name in book.devices for device in timeline.devices], np.bool_)
        timeline = _by_lifetime(timeline, in_book[timeline.rows.device])
    for number in np.flatnonzero(~in_book).tolist():
        timeline = with_weights(timeline, number)
    names = tuple(Category.__members__)
    code = timeline.rows.category.astype(np.int64)
    unlabelled = ~in_book[timeline.rows.device] & (timeline.rows.basis == Basis.NONE)
    if unlabelled.any():
        timeline, names, code = _by_rules(timeline, unlabelled, table or DEFAULT_TABLE, names, code)
        timeline, code = _by_structure(timeline, unlabelled & (code == Category.UNKNOWN), code)
    return timeline, Labels(names=names, code=code.astype(np.int32))


def _by_structure(timeline: AllocationTimeline, unlabelled: Bools, code: I64) -> tuple[AllocationTimeline, I64]:
    """Infer blocks that are older than the recording and have no stack."""
    rows, code = timeline.rows, code.copy()
    category, basis = rows.category.copy(), rows.basis.copy()
    for number in range(len(timeline.devices)):
        found, inferred = infer_older(timeline, number, unlabelled & (rows.stack < 0))
        category[found], basis[found] = inferred, Basis.INFERRED
        code[found] = inferred
    return timeline.with_columns(category=category, basis=basis), code


def _by_lifetime(timeline: AllocationTimeline, in_book: Bools) -> AllocationTimeline:
    """Infer rows without a note from their lifetime: inputs exist before forward, temporaries are freed."""
    rows = timeline.rows
    category, basis = rows.category.copy(), rows.basis.copy()
    inputs = in_book & _is_input(timeline) & ((rows.basis != Basis.KNOWN) | (category == Category.ACTIVATION))
    freed = in_book & (rows.basis == Basis.NONE) & (rows.alloc_event >= 0) & (rows.free_event >= 0) & ~inputs
    category[inputs] = Category.INPUT
    category[freed] = np.where(rows.phase[freed] == Phase.BACKWARD, Category.AUTOGRAD_DETAIL, Category.TEMPORARY)
    basis[inputs | freed] = Basis.INFERRED
    return timeline.with_columns(category=category, basis=basis)


def _is_input(timeline: AllocationTimeline) -> Bools:
    """Allocated outside of forward, backward and optimizer, and still alive when the next forward begins."""
    rows = timeline.rows
    is_input = np.zeros(len(rows), np.bool_)
    for number in range(len(timeline.devices)):
        allocated = np.flatnonzero((rows.device == number) & (rows.alloc_event >= 0))
        allocated = allocated[np.argsort(rows.alloc_event[allocated])]
        # index of the next allocation of a phase from each one on; the length for none
        indices = np.where(rows.phase[allocated] != Phase.OTHER, np.arange(len(allocated)), len(allocated))
        following = np.minimum.accumulate(indices[::-1])[::-1]
        has_next = following < len(allocated)
        has_next &= (rows.phase[allocated] == Phase.OTHER) & (rows.step[allocated] >= 0)
        row, next_row = allocated[has_next], allocated[following[has_next]]
        alive = (rows.free_event[row] < 0) | (rows.free_event[row] > rows.alloc_event[next_row])
        is_input[row] = alive & (rows.phase[next_row] == Phase.FORWARD) & (rows.step[next_row] == rows.step[row])
    return is_input


def _freed_before_next_pass(timeline: AllocationTimeline) -> Bools:
    """Rows with no allocation of a forward or backward pass between alloc and free; state outlives these."""
    rows = timeline.rows
    freed = (rows.alloc_event >= 0) & (rows.free_event >= 0)
    in_pass = (rows.phase == Phase.FORWARD) | (rows.phase == Phase.BACKWARD)
    for number in range(len(timeline.devices)):
        on_device = freed & (rows.device == number)
        events = np.sort(rows.alloc_event[in_pass & (rows.device == number)])
        at_alloc = np.searchsorted(events, rows.alloc_event[on_device], side="right")
        freed[on_device] = at_alloc == np.searchsorted(events, rows.free_event[on_device], side="right")
    return freed


def _by_rules(
    timeline: AllocationTimeline, unlabelled: Bools, table: CategoryTable, names: tuple[str, ...], code: I64
) -> tuple[AllocationTimeline, tuple[str, ...], I64]:
    """Infer from words, then from the phase; optimizer memory that is freed before the next forward is temporary."""
    rows = timeline.rows
    rule = rule_of_rows(timeline, table)
    of_phase = [_OF_PHASE.get(phase, Category.UNKNOWN) for phase in Phase]
    labels = [*(item.label for item in table.rules), UNKNOWN]
    names = tuple(dict.fromkeys((*names, *labels)))
    number = {name: index for index, name in enumerate(names)}
    code_of_rule = np.array([number[label] for label in labels])
    code_of_phase = np.array([number[category.name] for category in of_phase])[rows.phase]
    rule_category = np.array([-1 if item.category is None else int(item.category) for item in table.rules] + [-1])
    inferred = np.where(rule == len(table.rules), code_of_phase, code_of_rule[rule])
    category = np.where(rule_category[rule] < 0, np.array(of_phase)[rows.phase], rule_category[rule])
    temporary = (category == Category.OPTIMIZER_STATE) & _freed_before_next_pass(timeline)
    inferred[temporary], category[temporary] = number[Category.TEMPORARY.name], Category.TEMPORARY
    changed = unlabelled & (inferred != number[UNKNOWN])
    timeline = timeline.with_columns(
        category=np.where(changed, category, rows.category), basis=np.where(changed, Basis.INFERRED, rows.basis)
    )
    return timeline, names, np.where(changed, inferred, code)
