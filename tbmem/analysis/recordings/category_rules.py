"""Rules that infer a category from words in stacks, operators and modules, for recordings without an address book."""

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
    """A label, and words that imply it."""

    label: str
    """``'Attention'``, or the name of torch's category if it means the same: ``'OPTIMIZER_STATE'``."""
    words: tuple[str, ...]
    """Lower-case regular expressions, searched in ends of paths, functions, operators and modules."""
    category: Category | None = None
    """torch's category; ``None`` if it depends on the phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryTable:
    """Rules in order of precedence; the first that matches any frame applies."""

    rules: tuple[CategoryRule, ...]

    def extended(self, data: Iterable[Mapping[str, Any]]) -> CategoryTable:
        """Return the table with the user's rules before its own.

        Args:
            data: Rules as in YAML, ``[{label: Vision, words: [patch_embed], category: ACTIVATION}]``.

        Raises:
            ConfigError: A rule has no label or words, or an unknown category.
        """
        return CategoryTable(rules=(*(_rule(item) for item in data), *self.rules))


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
    """Number of the first rule that matches each allocation; ``len(table.rules)`` for none."""
    none = len(table.rules)
    words = [(number, word, _literal(word)) for number, rule in enumerate(table.rules) for word in rule.words]
    rows = timeline.rows
    rule_of_row = np.append(_of_stacks(timeline.stacks, words, none), none)[rows.stack]
    for names, column in ((timeline.operators, rows.operator), (timeline.modules, rows.module)):
        of_name = np.array([*(_first(words, name.lower(), none) for name in names), none], np.int64)
        rule_of_row = np.minimum(rule_of_row, of_name[column])
    return rule_of_row


_Words = Sequence[tuple[int, str, str]]
"""Rule number, word and literal of each word."""


def _literal(word: str) -> str:
    """Literal that every match of a word contains, tested before the regular expression; empty if it is not simple."""
    pieces = re.split(r".[?*]", word.replace(r"\b", ""))
    return "" if any(_SIGNS & set(piece) for piece in pieces) else max(pieces, key=len)


_SIGNS = set(r"\^$.|?*+()[]{}")


def _of_stacks(stacks: StackTable, words: _Words, none: int) -> I64:
    of_stack = np.full(len(stacks), none, np.int64)
    if len(stacks.frame):
        texts = [_text(frame) for frame in stacks.frames]
        of_text = {text: _first(words, text, none) for text in set(texts)}
        of_frame = np.array([of_text[text] for text in texts], np.int64)
        of_stack[:] = np.minimum.reduceat(of_frame[stacks.frame], stacks.offset[:-1])
    return of_stack


def _first(words: _Words, text: str, none: int) -> int:
    for number, word, literal in words:
        if literal in text and (literal == word or re.search(word, text)):
            return number
    return none


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
