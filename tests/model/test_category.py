"""Names of categories and phases for people."""

from __future__ import annotations

import pytest

from tbmem.model.category import WORDS, Category, Phase, word_of


@pytest.mark.parametrize("one", [*Category, *Phase])
def test_each_has_a_name_for_people(one: Category | Phase) -> None:
    assert "_" not in WORDS[one.name]
    assert WORDS[one.name] != one.name
    assert word_of(one.name) == word_of(one.name.lower()) == WORDS[one.name]


@pytest.mark.parametrize("label", ["Attention", "FSDP", "Expert/MoE", "(other)", "KV_CACHE"])
def test_labels_of_rules_are_words_already(label: str) -> None:
    assert word_of(label) == label
