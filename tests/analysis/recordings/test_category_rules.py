"""Words of stacks, and what they say."""

from __future__ import annotations

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.category_rules import DEFAULT_TABLE, CategoryTable
from tbmem.errors import ConfigError
from tbmem.model.category import Category, Phase
from tests.analysis.timelines import recording


def _label(frame: tuple[str, int, str], table: CategoryTable | None = None) -> tuple[str, str]:
    analysis = analyze(recording({"bytes": 8, "begin": 0, "stack": (frame,)}), table=table)
    return analysis.devices[0].by_category[0].name, Category(int(analysis.timeline.rows.category[0])).name


@pytest.mark.parametrize(
    ("file", "function", "label"),
    [
        ("/w/moe/titan/models/moe.py", "forward", "Expert/MoE"),
        ("/w/model.py", "grouped_mm_experts", "Expert/MoE"),
        ("/w/models/attention.py", "forward", "Attention"),
        ("/w/vllm/worker/cache_engine.py", "_allocate_kv_cache", "KV cache"),
        ("/w/transformers/cache_utils.py", "update", "KV cache"),
        ("/w/torch/nn/functional.py", "scaled_dot_product_attention", "Attention"),
        ("/w/torch/nn/modules/linear.py", "forward", "Linear/MatMul"),
        ("/w/torch/optim/adamw.py", "_init_group", "OPTIMIZER_STATE"),
        ("", "torch::autograd::Engine::execute", "GRADIENT"),
        ("/w/torch/distributed/fsdp/_flat_param.py", "unshard", "FSDP"),
        ("/w/deep_ep/buffer.py", "dispatch", "COMMUNICATION"),
        ("/w/torch/distributed/distributed_c10d.py", "all_reduce", "COMMUNICATION"),
        # the folder in which someone keeps the project says nothing
        ("/home/me/moe/attention/loss/project/train.py", "step", "UNKNOWN"),
        # nor does a function that somebody called so
        ("/w/train.py", "forward_and_backward", "UNKNOWN"),
        ("C:\\code\\layers\\attention.py", "forward", "Attention"),
    ],
)
def test_default_rules(file: str, function: str, label: str) -> None:
    assert _label((file, 3, function))[0] == label


def test_optimizer_memory_that_goes_is_temporary() -> None:
    stack = (("/w/torch/optim/adamw.py", 9, "step"),)
    rows = [{"bytes": 8, "begin": 0, "stack": stack}, {"bytes": 4, "begin": 1, "end": 2, "stack": stack}]

    found = {share.name: share.bytes for share in analyze(recording(*rows)).devices[0].by_category}

    assert found == {"OPTIMIZER_STATE": 8, "TEMPORARY": 4}


def test_state_that_is_replaced_in_each_step_is_state() -> None:
    # given an optimizer without a stack that makes new state and lets go of the old, and its scratch memory
    step = {"phase": Phase.OPTIMIZER, "step": 0}
    rows = [
        {"bytes": 100, "begin": 0, "end": 4, **step},
        {"bytes": 7, "begin": 1, "end": 2, **step},
        {"bytes": 50, "begin": 3, "end": 6, "phase": Phase.FORWARD, "step": 1},
        {"bytes": 100, "begin": 5, "end": 7, **step},
    ]

    device = analyze(recording(*rows)).main

    assert {share.name: share.max_bytes for share in device.by_category if share.max_bytes} == {
        "OPTIMIZER_STATE": 100,
        "ACTIVATION": 50,
        "TEMPORARY": 100,
    }


def test_where_no_word_tells_the_phase_does() -> None:
    rows = [{"bytes": 8, "begin": 0, "phase": Phase.FORWARD}, {"bytes": 4, "begin": 1, "phase": Phase.BACKWARD}]

    found = {share.name: share.bytes for share in analyze(recording(*rows)).devices[0].by_category}

    assert found == {"ACTIVATION": 8, "GRADIENT": 4}


def test_a_users_rule_comes_first() -> None:
    table = DEFAULT_TABLE.extended([{"label": "Vision", "words": ["Attention"], "category": "ACTIVATION"}])

    assert _label(("/w/models/attention.py", 3, "forward"), table) == ("Vision", "ACTIVATION")
    assert table.rules[0].label == "Vision"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"words": ["a"]}, "no label"),
        ({"label": "A"}, "words must be a list"),
        ({"label": "A", "words": [1]}, "words must be a list"),
        ({"label": "A", "words": ["a"], "category": "NONE"}, "category 'NONE' is none of"),
        ({"label": "A", "words": ["a"], "category": {"NONE": 1}}, "category {'NONE': 1} is none of"),
        ({"label": "A", "words": ["("]}, "regular expressions"),
    ],
)
def test_a_wrong_rule_is_one_line(rule: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match="categories: ") as caught:
        DEFAULT_TABLE.extended([rule])
    assert message in str(caught.value)
