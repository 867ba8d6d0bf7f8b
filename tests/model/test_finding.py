"""Conclusions as records and as JSON."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from tbmem.model.finding import Finding, FindingKind, Severity


def make_finding(**others: Any) -> Finding:
    values: dict[str, Any] = {
        "kind": FindingKind.LEAK,
        "severity": Severity.CRITICAL,
        "device": "cuda:0",
        "rank": 3,
        "first_step": 4,
        "last_step": 28,
        "message": "memory grows · by 2.00 GiB per step",
        "evidence": {"bytes_per_step": 1 << 31, "known_by": "floors", "holder": None, "lines": ["train.py:12"]},
        "advice": "store loss.item()",
    }
    return Finding(**{**values, **others})


@pytest.mark.parametrize("kind", list(FindingKind))
@pytest.mark.parametrize("severity", list(Severity))
def test_a_finding_survives_json(kind: FindingKind, severity: Severity) -> None:
    # given
    finding = make_finding(kind=kind, severity=severity)
    # when
    again = Finding.from_dict(json.loads(json.dumps(finding.to_dict())))
    # then
    assert again == finding


def test_a_spike_that_is_information_is_labelled_as_an_evaluation() -> None:
    # given
    spike = make_finding(kind=FindingKind.SPIKE, severity=Severity.WARNING)
    evaluation = make_finding(kind=FindingKind.SPIKE, severity=Severity.INFO)
    shift = make_finding(kind=FindingKind.LEVEL_SHIFT, severity=Severity.INFO)
    # then
    assert [one.label for one in (spike, evaluation, shift)] == ["SPIKE", "EVALUATION", "LEVEL SHIFT"]


def test_its_dictionary_has_plain_words() -> None:
    view = make_finding().to_dict()
    assert (view["kind"], view["severity"], view["rank"]) == ("leak", "critical", 3)
    assert type(view["kind"]) is str


def test_the_dictionary_is_a_copy() -> None:
    # given
    finding = make_finding()
    # when
    finding.to_dict()["evidence"]["more"] = 1
    # then
    assert "more" not in finding.evidence


def test_what_a_later_version_adds_is_ignored() -> None:
    assert Finding.from_dict({**make_finding().to_dict(), "confidence": 0.9}) == make_finding()


def test_what_may_be_left_out_has_a_default() -> None:
    # given
    required = {"kind": "spike", "severity": "warning", "device": "cpu", "first_step": 1, "last_step": 2, "message": ""}
    # when
    finding = Finding.from_dict(required)
    # then
    assert (finding.rank, dict(finding.evidence), finding.advice) == (0, {}, "")


@pytest.mark.parametrize("key", ["kind", "severity", "device", "first_step", "last_step", "message"])
def test_a_missing_key_is_named(key: str) -> None:
    data = make_finding().to_dict()
    del data[key]
    with pytest.raises(ValueError, match=key):
        Finding.from_dict(data)


@pytest.mark.parametrize("key", ["kind", "severity"])
def test_an_unknown_word_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="astonishing"):
        Finding.from_dict({**make_finding().to_dict(), key: "astonishing"})


def test_a_finding_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        make_finding().message = "all is well"  # type: ignore[misc]
