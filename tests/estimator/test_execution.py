"""Jobs are executed on fake tensors in a child process; sizes are those that can be worked out, errors are one line."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tbmem.errors import UsageError
from tbmem.estimator.refusals import REHEARSE
from tbmem.estimator.worker import FALLBACK, simulate_jobs
from tbmem.model.category import Category, Phase
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tests.conftest import PROJECT

KIB = 1024
FACTORIES = "tests.estimator.factories"


def job(factory: str, **changes: object) -> Job:
    return replace(Job(model=f"{FACTORIES}:{factory}", search_path=str(PROJECT), steps=2), **changes)  # type: ignore[arg-type]


BROKEN = (
    *("data_dependent", "raises", "only_model", "no_loss", "nothing", "NOT_A_FUNCTION"),
    *("ddp", "fsdp1", "gpu_kernel", "custom_operator", "leaves", "frozen"),
    *("loss_of_one", "loss_is_none", "needs_width", "needs_length", "reads_numpy"),
    *("sparse", "lazy", "quantized"),
    *("data_parallel", "two_gpus", "fully_sharded", "context_parallel", "trains_itself"),
)
UNUSUAL = ("flexible", "narrow_values", "checks", "streams", "grouped", "names_its_loss")
JOBS = {
    "linear": job("linear", batch=4),
    "inference": job("linear", inference=True),
    "fp8 weight": job("fp8_weight"),
    "fp8 product": job("fp8_product", inference=True, dtype="bfloat16"),
    "autocast": job("layers", inference=True, amp="bfloat16"),
    "inference mode": job("layers", inference=True, inference_mode=True, amp="bfloat16"),
    "infers": job("infers", inference=True),
    "infers once": job("layers", inference=True),
    **{name: job(name) for name in ("on_the_gpu", "made_on_the_gpu", "averaged")},
    "cpu": job("linear", device="cpu"),
    "layers": job("layers"),
    "batch 4096": job("layers", batch=4096),
    "batch 8192": job("layers", batch=8192),
    "checkpointed": job("layers", batch=8192, checkpoint=True),
    "sgd": job("layers", optimizer="sgd"),
    "momentum": job("layers", optimizer="momentum"),
    "adamw8bit": job("layers", optimizer="adamw8bit"),
    "offload": job("layers", offload=True),
    "copied": job("copied"),
    "pictures": job("pictures"),
    "pictures on the CPU": job("pictures", device="cpu"),
    "pictures instead": job("pictures", device="cpu", instead=True),
    "gru instead": job("gru", device="cpu", instead=True),
    "gru": job("gru"),
    "own step": job("own_step"),
    "lbfgs": job("lbfgs"),
    "calls_compiled": job("calls_compiled"),
    "nothing to checkpoint": job("linear", checkpoint=True),
    "one unit": job("linear", fsdp=2, world_size=2),
    "sharded layers": job("layers", fsdp=2, world_size=2),
    **{name: job(name) for name in (*BROKEN, *UNUSUAL)},
    "in halves": job("grouped", dtype="float16"),
    "no file": Job(model="nowhere/config.json"),
    "gpt5": Job(model="gpt5"),
    "bert": Job(model="bert-base-uncased"),
    "no package": Job(model="no_such_package:make"),
}


@cache
def outcomes() -> dict[str, SimulatedRun | UsageError]:
    """All jobs, in one child."""
    return dict(zip(JOBS, simulate_jobs(list(JOBS.values())), strict=True))


def executed(name: str) -> SimulatedRun:
    outcome = outcomes()[name]
    assert isinstance(outcome, SimulatedRun), outcome
    return outcome


def bytes_of(run: SimulatedRun, category: Category, step: int | None = None) -> int:
    which = run.category == category
    if step is not None:
        which &= run.step == step
    return int(run.size[which].sum())


def peak(run: SimulatedRun) -> int:
    change = np.zeros(2 * len(run) + 2, dtype=np.int64)
    ended = run.free_event >= 0
    np.add.at(change, run.alloc_event, run.size)
    np.add.at(change, run.free_event[ended], -run.size[ended])
    return int(change.cumsum().max())


def test_a_layers_bytes_by_category() -> None:
    run = executed("linear")

    assert bytes_of(run, Category.PARAMETER) == 256 * KIB
    assert bytes_of(run, Category.GRADIENT, step=1) == 256 * KIB
    assert bytes_of(run, Category.OPTIMIZER_STATE) == 2 * 256 * KIB
    assert bytes_of(run, Category.INPUT, step=1) == 4 * KIB
    assert set(run.phase[run.step >= 0].tolist()) == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
    assert FALLBACK not in run.notes


def test_a_pass_without_training_makes_nothing_that_stays() -> None:
    run = executed("inference")

    assert bytes_of(run, Category.GRADIENT) == bytes_of(run, Category.OPTIMIZER_STATE) == 0
    assert bytes_of(run, Category.ACTIVATION) == 0


def test_autocast_casts_each_weight_once_but_in_inference_mode() -> None:
    # given six blocks with two linear layers of 512 KiB in bfloat16
    no_grad, inference_mode = executed("autocast"), executed("inference mode")

    assert peak(no_grad) - peak(inference_mode) == pytest.approx(11 * 512 * KIB, rel=0.01)
    assert any("--inference-mode" in note for note in no_grad.notes)
    assert not inference_mode.notes
    for run in (no_grad, inference_mode):
        assert "cuBLAS workspace" in run.operators


def test_a_step_of_ones_own_is_run_without_training() -> None:
    assert peak(executed("infers")) > peak(executed("infers once"))
    assert bytes_of(executed("infers"), Category.GRADIENT) == 0


@pytest.mark.parametrize("name", ["on_the_gpu", "made_on_the_gpu"])
def test_a_factory_that_uses_the_gpu_itself_has_the_same_bytes(name: str) -> None:
    run, plain = executed(name), executed("layers")

    assert peak(run) == peak(plain)
    for kind in (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE):
        assert bytes_of(run, kind) == bytes_of(plain, kind)


def test_a_copy_that_the_factory_keeps_on_the_gpu_is_counted() -> None:
    run, plain = executed("averaged"), executed("layers")

    assert peak(run) - peak(plain) == bytes_of(plain, Category.PARAMETER)


def test_modules_are_named_also_for_gradients_and_state() -> None:
    run = executed("layers")

    kinds = (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE)
    for kind in kinds:
        named = {run.modules[number] for number in run.module[run.category == kind].tolist() if number >= 0}
        assert {"0.0", "5.2"} <= named


def test_the_backward_pass_is_its_own_modules() -> None:
    # given blocks of a linear layer (0), a GELU (1) and another linear layer (2)
    run = executed("layers")

    # when memory is made by the backward pass of the GELU
    mine = [run.operators[number] == "aten::gelu_backward" for number in run.operator.tolist()]

    # then it is the GELU's, not that of the layer that runs after it in the forward pass
    assert {run.modules[number] for number in run.module[mine].tolist()} == {f"{block}.1" for block in range(6)}


def test_doubling_the_batch_doubles_activations_and_nothing_else() -> None:
    small, large = executed("batch 4096"), executed("batch 8192")

    assert bytes_of(large, Category.ACTIVATION, 1) == pytest.approx(
        2 * bytes_of(small, Category.ACTIVATION, 1), rel=1e-3
    )
    for kind in (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE):
        assert bytes_of(large, kind) == bytes_of(small, kind)


def test_checkpointing_lowers_the_peak_and_not_the_states() -> None:
    plain, checkpointed = executed("batch 8192"), executed("checkpointed")

    assert peak(checkpointed) < 0.7 * peak(plain)
    for kind in (Category.PARAMETER, Category.OPTIMIZER_STATE):
        assert bytes_of(checkpointed, kind) == bytes_of(plain, kind)


def test_optimizers_hold_what_they_are_known_to_hold() -> None:
    parameters = bytes_of(executed("layers"), Category.PARAMETER)
    state = {
        name: bytes_of(executed(name), Category.OPTIMIZER_STATE) / parameters
        for name in ("sgd", "momentum", "adamw8bit")
    }

    assert state["sgd"] == 0
    assert state["momentum"] == pytest.approx(1, rel=0.01)
    assert state["adamw8bit"] == pytest.approx(0.5, rel=0.05)
    assert bytes_of(executed("offload"), Category.OPTIMIZER_STATE) == 0


def test_deep_copies_of_a_layer_have_memory_of_their_own() -> None:
    run = executed("copied")

    one = 64 * 192 + 192 + 64 * 64 + 64 + 2 * 64 * 128 + 128 + 64 + 4 * 64
    assert bytes_of(run, Category.PARAMETER) == 3 * one * 4
    assert not any("(scratch)" in name and "aten::t" in name for name in run.operators)


def test_the_same_job_on_cpu_tensors() -> None:
    run = executed("cpu")

    assert run.about["device"] == "cpu"
    assert bytes_of(run, Category.PARAMETER) == 256 * KIB


def test_what_libraries_take_is_named() -> None:
    assert any("cuDNN's workspace for convolutions is not counted" in note for note in executed("pictures").notes)
    assert any("recurrent layers (GRU) were run cell by cell" in note for note in executed("gru instead").notes)
    assert not executed("gru").notes
    assert any("cuDNN's workspace" in note for note in executed("pictures instead").notes)
    (note,) = executed("pictures on the CPU").notes
    assert note.startswith("memory that oneDNN takes for itself on the CPU is not counted")
    assert not executed("layers").notes


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        ("data_dependent", "factories.py:.*shapes depend on values"),
        ("raises", "factories.py:.*the data set is not here"),
        ("only_model", "returns a model only"),
        ("frozen", "none of its parameters is trained; say --inference"),
        ("no_loss", "output is no loss"),
        ("loss_of_one", r"the loss takes \(output\); it is called with \(output, batch\)"),
        ("loss_is_none", "the loss is of type int; give a function"),
        ("needs_width", "the factory has parameters width; give it a default .given: batch,"),
        ("needs_length", "the factory has parameters seq; say --seq"),
        ("reads_numpy", "factories.py:.*reads values, which an estimate does not have"),
        ("nothing", "has no function nothing"),
        ("NOT_A_FUNCTION", "has no function"),
        ("ddp", "return the plain model, --ddp N"),
        ("fsdp1", "FSDP1.*--fsdp N shards it with FSDP2"),
        ("data_parallel", f"an estimate has one: return the plain model, or {REHEARSE}"),
        (
            "two_gpus",
            f"factories.py:.*on cuda:0 and cuda:1, and an estimate has one GPU: put all on one, or {REHEARSE}",
        ),
        ("fully_sharded", f"over ranks itself .fully_shard.; return the plain model and say --fsdp.*{REHEARSE}"),
        ("context_parallel", f"over ranks itself .init_device_mesh.; return the plain model.*{REHEARSE}"),
        ("trains_itself", f"transformers' Trainer has a loop.*; return the model and a batch, or {REHEARSE}"),
        ("gpu_kernel", "factories.py:.*a kernel that only a GPU can run.*register_fake"),
        ("custom_operator", "register_fake"),
        ("quantized", "no fake version .aten::fake_quantize_per_tensor_affine"),
        ("sparse", "leave sparse=True out for an upper bound"),
        ("lazy", "factories.py:.*lazy modules.*give the sizes"),
        ("leaves", "the factory ended the program .3."),
        ("no file", "nowhere/config.json: No such file"),
        ("gpt5", "did you mean gpt2\\? or name a factory"),
        ("bert", "bert-base-uncased: did you mean google-bert/bert-base-uncased, on Hugging Face's hub\\?"),
        ("no package", "No module named"),
    ],
)
def test_what_is_wrong_is_one_line(factory: str, reason: str) -> None:
    outcome = outcomes()[factory]

    assert isinstance(outcome, UsageError)
    assert re.search(reason, str(outcome))
    assert "\n" not in str(outcome)


def test_flexible_attention_is_its_kernels_memory() -> None:
    run = executed("flexible")
    steady = run.step == 1
    made = run.size[steady & (run.operator == run.operators.index("flex_attention"))]
    of_backward = run.size[steady & (run.operator == run.operators.index("flex_attention_backward"))]

    # the result of 2 samples, 4 heads, 128 tokens and 16 values, and two numbers for each of their rows
    assert made.tolist() == [64 * KIB, 4 * KIB, 4 * KIB]
    assert of_backward.tolist() == [64 * KIB] * 3
    # no scores (256 KiB a head), and nothing of how they were tried out stays
    assert run.size[steady].max() < 256 * KIB
    assert any("flex_attention was counted as the kernel" in note for note in run.notes)
    assert not (run.free_event[steady & (run.category == Category.ACTIVATION)] < 0).any()


def test_values_may_be_narrower_than_keys() -> None:
    run = executed("narrow_values")

    name = "aten::_scaled_dot_product_efficient_attention"
    assert run.size[(run.step == 1) & (run.operator == run.operators.index(name))].max() == 32 * KIB


def test_checks_find_that_all_is_well() -> None:
    assert any("of all() True" in note for note in executed("checks").notes)


@pytest.mark.parametrize("name", ["streams", "names_its_loss"])
def test_what_only_a_gpu_knows_is_let_pass(name: str) -> None:
    assert executed(name).notes == ()


@pytest.mark.parametrize(("name", "size"), [("grouped", 8 * 32 * 4), ("in halves", 8 * 32 * 2)])
def test_grouped_products_take_all_types_that_the_real_ones_take(name: str, size: int) -> None:
    run = executed(name)

    which = (run.step == 1) & (run.operator == run.operators.index("aten::_grouped_mm"))
    assert run.size[which][0] == size


def test_a_users_own_step_is_told_apart_into_its_phases() -> None:
    own, ours = executed("own step"), executed("layers")

    assert {int(one) for one in own.phase[own.step == 1]} == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
    for kind in (Category.PARAMETER, Category.OPTIMIZER_STATE):
        assert bytes_of(own, kind) == bytes_of(ours, kind)
    assert bytes_of(own, Category.GRADIENT, 1) == bytes_of(ours, Category.GRADIENT, 1)
    assert bytes_of(own, Category.ACTIVATION, 1) > 0


def test_what_lbfgs_keeps_in_a_real_run_is_named() -> None:
    # given a hundred entries of its history, each twice the weights' 256 KiB
    (note,) = [note for note in executed("lbfgs").notes if "LBFGS" in note]

    assert "which grows to 50.00 MiB" in note


def test_compiled_code_is_named_where_it_runs() -> None:
    """The module of both factories has a compiled function; one calls it."""
    assert any("torch.compile was left out" in note for note in executed("calls_compiled").notes)
    assert not executed("layers").notes


def test_a_model_without_layers_is_not_checkpointed_in_silence() -> None:
    assert any("--checkpoint changed nothing" in note for note in executed("nothing to checkpoint").notes)
    assert not any("changed nothing" in note for note in executed("checkpointed").notes)


def test_a_model_without_layers_is_not_sharded_as_one_in_silence() -> None:
    assert any("--fsdp shards the whole model as one unit" in note for note in executed("one unit").notes)
    assert not executed("sharded layers").notes


def test_blocks_of_a_communication_stream_are_told_apart() -> None:
    run = executed("sharded layers")

    gathered = run.category == Category.COMMUNICATION
    assert set(run.stream[gathered]) - {0}
    assert not run.stream[run.category == Category.ACTIVATION].any()
    assert not executed("layers").stream.any()


def test_float8_counts_a_byte_for_each_element_and_is_noted() -> None:
    # given a weight of 256 x 512 in float8, and a product of two matrices of it
    weight, product = executed("fp8 weight"), executed("fp8 product")
    # then
    assert any(
        note.startswith("fp8: tensors in float8 are counted with a byte for each element") for note in weight.notes
    )
    assert any(note.startswith("fp8: ") for note in product.notes)
    assert bytes_of(weight, Category.BUFFER) == 256 * 512
    assert not any(note.startswith("fp8") for note in executed("linear").notes)


@pytest.mark.parametrize("option", ["dtype", "amp"])
def test_fp8_is_no_type_of_a_whole_model(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} is 'fp8': no model is trained in fp8 as a whole"):
        Job.of("gpt2", **{option: "fp8"})


def test_training_in_half_precision_points_to_autocast() -> None:
    halves, whole = (
        [note for note in run.notes if "--dtype float32 --amp bf16" in note]
        for run in simulate_jobs([Job(model="small", batch=1, sequence=16, dtype=each) for each in ("bfloat16", None)])
    )
    assert len(halves) == 1
    assert not whole
