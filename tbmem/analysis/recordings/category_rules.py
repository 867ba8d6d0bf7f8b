"""Rules that infer a category from words in stacks, operators and modules.

Only for recordings without an address book. The table is data: ``CategoryTable.extended`` puts a user's own rules
before those of the default one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tbmem.analysis.source_lines import end_of_path
from tbmem.errors import ConfigError
from tbmem.model.category import Category
from tbmem.model.columns import I64
from tbmem.model.stacks import Frame, StackTable
from tbmem.model.timeline import AllocationTimeline

UNKNOWN = Category.UNKNOWN.name


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryRule:
    """Any of these words means this label."""

    label: str
    """``'Attention'``, or the name of torch's own category where it means just that: ``'OPTIMIZER_STATE'``."""
    words: tuple[str, ...]
    """Searched for, in small letters, in the last two parts of a file's path, in functions, operators, modules.
    A word that begins or ends at the edge of a word is written with ``\\b``: they are regular expressions."""
    category: Category | None = None
    """torch's own word for it; ``None`` if it depends on the phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryTable:
    """Rules; the first that fits any part of a stack wins."""

    rules: tuple[CategoryRule, ...]

    def extended(self, data: Iterable[Mapping[str, Any]]) -> CategoryTable:
        """The table with more rules before its own.

        Args:
            data: As read from YAML: ``[{label: Vision, words: [patch_embed], category: ACTIVATION}]``.

        Raises:
            ConfigError: A rule has no label or words, or its category is none.
        """
        return CategoryTable(rules=(*(_rule(one) for one in data), *self.rules))


DEFAULT_TABLE = CategoryTable(
    rules=(
        CategoryRule(
            label=Category.COMMUNICATION.name,
            category=Category.COMMUNICATION,
            words=("nccl", "all_to_all", "alltoall", "all_reduce", "allreduce", "deep_?ep", "c10d", "functional_coll"),
        ),
        CategoryRule(
            label="FSDP",
            category=Category.COMMUNICATION,
            words=("fsdp", "fully_shard", "flat_param", "all_gather", "allgather", "reduce_scatter"),
        ),
        CategoryRule(
            label=Category.OPTIMIZER_STATE.name,
            category=Category.OPTIMIZER_STATE,
            words=(r"\boptim/", r"\boptimizers?\b", r"\badamw?\b", r"_init_group", r"\bmuon\b", "adafactor"),
        ),
        CategoryRule(
            label=Category.GRADIENT.name,
            category=Category.GRADIENT,
            words=("autograd::engine", "run_backward", "accumulategrad", r"backward0\b"),
        ),
        CategoryRule(
            label=Category.PARAMETER.name,
            category=Category.PARAMETER,
            words=(
                "from_pretrained",
                "load_state_dict",
                "load_checkpoint",
                "reset_parameters",
                r"\b_apply\b",
                "init_weights",
            ),
        ),
        CategoryRule(label="Expert/MoE", words=(r"\bmoe", r"moe\b", "expert", "router", "grouped_gemm", "grouped_mm")),
        CategoryRule(
            label="Attention", words=("attention", r"attn", r"sdpa", "flash_", "kv_?cache", "rotary", r"\brope")
        ),
        CategoryRule(label="Embedding", words=("embedding", r"embed_tokens", r"\bwte\b")),
        CategoryRule(label="Normalization", words=("layer_?norm", "rms_?norm", "batch_?norm", "group_?norm")),
        CategoryRule(label="Loss", words=("cross_entropy", "nll_loss", "log_softmax", r"loss\b")),
        CategoryRule(label="Convolution", words=("convolution", r"\bconv", "cudnn_conv")),
        CategoryRule(
            label="Linear/MatMul", words=("linear", "matmul", r"mm\b", "gemm", r"\bmlp", "feed_?forward", r"\bffn")
        ),
        CategoryRule(
            label=Category.INPUT.name, category=Category.INPUT, words=("dataload", "collate", "get_batch", "pin_memory")
        ),
    )
)


def rule_of_rows(timeline: AllocationTimeline, table: CategoryTable) -> I64:
    """Number of the first rule that fits each allocation; ``len(table.rules)`` for none."""
    none = len(table.rules)
    words = [(number, word, _core(word)) for number, rule in enumerate(table.rules) for word in rule.words]
    rows = timeline.rows
    found = np.append(_of_stacks(timeline.stacks, words, none), none)[rows.stack]
    for names, column in ((timeline.operators, rows.operator), (timeline.modules, rows.module)):
        of_name = np.array([*(_first(words, name.lower(), none) for name in names), none], np.int64)
        found = np.minimum(found, of_name[column])
    return found


_Words = Sequence[tuple[int, str, str]]
"""Each with its rule's number before it and its core behind."""


def _core(word: str) -> str:
    """Letters that stand in every text that a word fits: whether they do is known at once; empty if not told easily."""
    pieces = re.split(r".[?*]", word.replace(r"\b", ""))
    return "" if any(_SIGNS & set(piece) for piece in pieces) else max(pieces, key=len)


_SIGNS = set(r"\^$.|?*+()[]{}")


def _of_stacks(stacks: StackTable, words: _Words, none: int) -> I64:
    found = np.full(len(stacks), none, np.int64)
    if len(stacks.frame):
        texts = [_text(frame) for frame in stacks.frames]
        known = {text: _first(words, text, none) for text in set(texts)}
        of_frame = np.array([known[text] for text in texts], np.int64)
        found[:] = np.minimum.reduceat(of_frame[stacks.frame], stacks.offset[:-1])
    return found


def _first(words: _Words, text: str, none: int) -> int:
    for number, word, core in words:
        if core in text and (core == word or re.search(word, text)):
            return number
    return none


def _text(frame: Frame) -> str:
    """Function and end of the path: the folder in which someone keeps the project says nothing of the allocation.

    Of a C++ function its name counts; its parameters have names of types, hundreds of letters of them.
    """
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
    if category is not None and category not in Category.__members__:
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
