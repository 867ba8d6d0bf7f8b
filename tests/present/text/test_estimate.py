"""Estimates as a terminal and a program get them."""

from __future__ import annotations

from dataclasses import replace

from tbmem.analysis.estimates.fit import Alternative, Fit
from tbmem.model.job import Job
from tbmem.present.text.estimate import estimate_lines, estimate_view
from tbmem.units import MIB
from tests.analysis.estimates.test_fit import judged


def test_what_a_terminal_and_a_program_see() -> None:
    estimate = judged()

    text = "\n".join(estimate_lines(estimate))

    assert "peak allocated    450.00 MiB" in text
    assert "layers.*.up" in text
    assert "Note: something was assumed." in text
    assert estimate_view(estimate)["formula"]["total"] == 450 * MIB


def test_the_first_line_has_what_was_assumed() -> None:
    estimate = replace(judged(), sequence=1024, optimizer="AdamW")
    inference = replace(estimate, job=replace(estimate.job, inference=True))

    assert f", batch {estimate.job.batch} of 1024 tokens, AdamW, on " in next(estimate_lines(estimate))
    assert f", batch {estimate.job.batch} of 1024 tokens, inference, on " in next(estimate_lines(inference))


def test_the_formula_and_what_it_leaves_out() -> None:
    # given 450 MiB in the formula, and 20 more of which 5 are communication
    estimate = judged()
    more = replace(estimate, peak_allocated=470 * MIB, by_category={**estimate.by_category, "communication": 5 * MIB})

    text = "\n".join(estimate_lines(more))

    assert "and 20.00 MiB that the formula leaves out: communication (5.00 MiB), the backward pass's own" in text
    assert "that the formula leaves out" not in "\n".join(estimate_lines(estimate))


def test_modules_beyond_a_dozen_are_one_line() -> None:
    estimate = replace(judged(), by_module={f"m{number}": MIB for number in range(15)})

    lines = list(estimate_lines(estimate))

    (rest,) = (line.split() for line in lines if "3 more" in line)
    assert rest == ["3", "more", "3.00", "MiB"]
    assert not any("m12" in line for line in lines)


def test_alternatives_say_whether_one_fits() -> None:
    changed = Alternative(change="bf16", allocated=MIB, reserved=2 * MIB, fit=Fit.TIGHT, batch=8)
    largest = replace(changed, change="batch 4, the largest that is not tight", fit=Fit.FITS, batch=4)
    estimate = replace(judged(), alternatives=(changed,))
    estimate = replace(estimate, job=replace(estimate.job, batch=8))

    text = "\n".join(estimate_lines(replace(estimate, fit=Fit.NO)))
    tight = "\n".join(estimate_lines(replace(estimate, fit=Fit.TIGHT)))
    found = "\n".join(estimate_lines(replace(estimate, alternatives=(changed, largest))))

    assert "1.00 MiB     2.00 MiB   tight" in text
    assert "no batch fits without being tight, however small" in text
    assert "no batch fits" not in tight + found
    # and where the batch is the smallest, it is plain that it does not fit
    of_one = (replace(changed, batch=1),)
    smallest = replace(estimate, fit=Fit.NO, job=replace(estimate.job, batch=1), alternatives=of_one)
    assert "not even a batch of 1 fits" in "\n".join(estimate_lines(smallest))
    # other batches than a factory's own are not tried
    factorys = replace(smallest, job=replace(smallest.job, own_batch=True))
    assert "batch of 1" not in "\n".join(estimate_lines(factorys))


def test_what_fits_on_several_gpus_only_says_so() -> None:
    sharded = Alternative(change="FSDP over 16", allocated=MIB, reserved=2 * MIB, fit=Fit.FITS, batch=1, ranks=16)
    estimate = replace(judged(), fit=Fit.NO, alternatives=(replace(sharded, change="bf16", fit=Fit.NO), sharded))

    text = "\n".join(estimate_lines(estimate))
    also_alone = replace(
        estimate, alternatives=(*estimate.alternatives, replace(sharded, change="8-bit AdamW", ranks=1))
    )

    nothing = replace(estimate, alternatives=estimate.alternatives[:1])

    assert "on one GPU none of these is enough, nor are two or three of them together" in text
    assert "  none of these is enough, nor are" in "\n".join(estimate_lines(nothing))
    assert "on one GPU" not in "\n".join(estimate_lines(also_alone))


def test_inference_has_no_optimizer_to_speak_of() -> None:
    text = "\n".join(estimate_lines(replace(judged(), job=Job(model="gpt2", inference=True))))

    assert "optimizer's state" not in text


def test_no_duration_is_told_that_is_a_part_of_the_whole() -> None:
    (last,) = [line for line in estimate_lines(replace(judged(), executed="fake CUDA tensors")) if "Executed" in line]

    assert last == "Executed on fake CUDA tensors."


def test_a_peak_before_the_first_step_is_not_a_step() -> None:
    text = "\n".join(estimate_lines(replace(judged(), peak_step=-1, peak_phase="setup")))

    assert "The peak is before the first step, where the model is made." in text
