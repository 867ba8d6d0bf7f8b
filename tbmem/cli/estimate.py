"""`tbmem estimate`: a training's description goes in, its memory on one rank's GPU comes out; no GPU is needed."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from tbmem.cli.arguments import AsJson
from tbmem.errors import UsageError
from tbmem.model.estimate import Fit
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job, parts_of_a_step

Subject = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="gpt2, medium, xl, 2.7b, llama-7b, ...; package.module:factory or file.py:factory; or a config.json.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="The same, as an option."),
]


def command(
    subject: Subject = None,
    model: Model = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Samples of a step on one rank; by default 1, in a pipeline one for each microbatch."),
    ] = None,
    seq: Annotated[int | None, typer.Option(help="Tokens of a sample; by default the model's own length.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Of the parameters: float32, bfloat16, float16; by default a config's or factory's own, else float32."
        ),
    ] = None,
    amp: Annotated[str | None, typer.Option(help="autocast to bfloat16 or float16.")] = None,
    optimizer: Annotated[
        str, typer.Option(help="adamw, adam, sgd, momentum, adafactor, adamw8bit, none, ...")
    ] = "adamw",
    implementation: Annotated[str, typer.Option(help="default, foreach, fused, for-loop, capturable.")] = "default",
    checkpoint: Annotated[bool, typer.Option("--checkpoint", help="Checkpoint each layer's activations.")] = False,
    accumulate: Annotated[int, typer.Option(help="Parts that a step's batch is cut into.")] = 1,
    clip: Annotated[float | None, typer.Option(help="Norm that gradients are clipped to.")] = None,
    inference: Annotated[bool, typer.Option("--inference", help="Only the forward pass.")] = False,
    offload: Annotated[bool, typer.Option("--offload", help="Optimizer state in host memory.")] = False,
    world_size: Annotated[int | None, typer.Option(help="Ranks in all; by default the product of the next.")] = None,
    fsdp: Annotated[int, typer.Option(help="Ranks that share the model's states.")] = 1,
    ddp: Annotated[
        int | None, typer.Option(help="Copies; with --fsdp copies of its groups; by default what --world-size leaves.")
    ] = None,
    tp: Annotated[int, typer.Option(help="Ranks that share each layer.")] = 1,
    pp: Annotated[int, typer.Option(help="Stages of a pipeline.")] = 1,
    ep: Annotated[int, typer.Option(help="Ranks that share the experts.")] = 1,
    imbalance: Annotated[
        float, typer.Option(help="Tokens that this rank's experts get, as a multiple of the average.")
    ] = 1.0,
    rank: Annotated[int, typer.Option(help="Whose memory.")] = 0,
    schedule: Annotated[str, typer.Option(help="Of the pipeline: 1f1b or gpipe.")] = "1f1b",
    microbatches: Annotated[int | None, typer.Option(help="Of a pipeline; by default twice its stages.")] = None,
    gpu: Annotated[str, typer.Option(help="h100-80gb, a100-40gb, t4, ...")] = "h100-80gb",
    alloc_conf: Annotated[str, typer.Option(help="As in PYTORCH_ALLOC_CONF.")] = "",
    alternatives: Annotated[
        bool | None,
        typer.Option(help="Also estimate what would make it fit; by default where it does not.", show_default=False),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Write a recording for report, compare and TensorBoard, and the estimate as JSON."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether a training will fit, and what its memory goes to, before there is a GPU."""
    from tbmem.present.estimate import estimate_lines, estimate_view
    from tbmem.runtime.estimate import estimate_and_run
    from tbmem.runtime.estimate_files import write_estimate

    named = _one_of(subject, model)
    device = gpu_named(gpu)
    shared = fsdp * tp * pp * ep
    ranks = shared if world_size is None else world_size
    # what is below 1 is refused by the job, in words
    copies = max(ranks // max(shared, 1), 1) if ddp is None else ddp
    result, run = estimate_and_run(
        Job(
            model=named,
            batch=parts_of_a_step(pp, microbatches, 1) if batch is None else batch,
            sequence=seq,
            dtype=dtype,
            amp=amp,
            optimizer=optimizer,
            implementation=implementation,
            checkpoint=checkpoint,
            accumulate=accumulate,
            clip=clip,
            inference=inference,
            offload=offload,
            world_size=shared * copies if world_size is None else world_size,
            fsdp=fsdp,
            replicate=copies,
            tensor=tp,
            pipeline=pp,
            expert=ep,
            rank=rank,
            imbalance=imbalance,
            schedule=schedule,
            microbatches=microbatches,
            search_path=os.getcwd(),
        ),
        device.name,
        alloc_conf,
        alternatives,
    )
    written = write_estimate(out, result, run) if out is not None else []
    if as_json:
        typer.echo(json.dumps(estimate_view(result), indent=2))
    else:
        typer.echo("\n".join(estimate_lines(result)))
        for path in written:
            typer.echo(f"wrote {path}")
    raise typer.Exit(1 if result.fit is Fit.NO else 0)


def _one_of(subject: str | None, model: str | None) -> str:
    if subject is not None and model is not None:
        raise UsageError(f"{subject}: the model is named by --model as well; leave one out")
    named = subject if model is None else model
    if named is None:
        raise UsageError("no model: tbmem estimate llama-7b, or file.py:factory, or a config.json; see tbmem --help")
    return named
