"""The command `tbmem estimate`: estimates the memory of a training run on one rank's GPU, without a GPU."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import typer

from tbmem.cli.arguments import AsJson
from tbmem.cli.launcher_environment import with_environment
from tbmem.cli.waiting import waiting
from tbmem.errors import UsageError
from tbmem.model.job import Job, job_options

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help=(
            "gpt2, gpt2-medium, llama-7b, ..., or sizes in Llama's layout (small, xl, 2.7b); package.module:factory"
            " or file.py:factory; a config.json or its folder; or owner/model on Hugging Face's hub."
            " A factory returns (model, batch[, loss[, optimizer[, step]]]). The model gets a batch that is a tensor as"
            " its argument, a dict as keyword arguments, a tuple as its arguments in order, of which the last may be a"
            " dict of keyword arguments. With a loss, called as loss(output, batch), what forward() has no parameter"
            " for is left to the loss, such as the targets in (inputs, targets)."
        ),
    ),
]
Model = Annotated[str | None, typer.Option("--model", "-m", help="The model, as an option.")]
Gpu = Annotated[str, typer.Option(help="h100-80gb, a100-40gb, t4, ..., or a size: 12GiB. Several with commas, or all.")]
AllocConf = Annotated[str, typer.Option(help="Allocator settings, as in PYTORCH_ALLOC_CONF.")]
Alternatives = Annotated[
    bool | None,
    typer.Option(help="Also estimate variants that would fit; by default only if it does not fit.", show_default=False),
]
Out = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="Write a recording for report, compare and TensorBoard, and the estimate as JSON."
    ),
]
Variants = Annotated[
    bool,
    typer.Option(
        "--variants",
        help="With --out: also other batches, checkpointing and allocator settings, for the Estimate view.",
    ),
]


def command(
    *,
    model_argument: ModelArgument = None,
    model: Model = None,
    gpu: Gpu = "h100-80gb",
    alloc_conf: AllocConf = "",
    alternatives: Alternatives = None,
    out: Out = None,
    variants: Variants = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Estimate the memory of a training run before it starts, without a GPU."""
    from tbmem.api.estimate import estimate
    from tbmem.present.text.estimate import estimate_lines

    if model_argument is not None and model is not None:
        raise UsageError(f"{model_argument}: the model is named by --model as well; leave one out")
    name = model_argument if model is None else model
    if name is None:
        raise UsageError("no model: say llama-7b, file.py:factory or a config.json. Try 'tbmem estimate --help'")
    options, origin = with_environment(options, os.environ)
    hint = "" if alternatives is False else "; --no-alternatives leaves out what would make it fit"
    shown = ""

    def show(first: Any) -> None:
        """The estimate itself at once: what would make it fit may take minutes."""
        nonlocal shown
        if not as_json:
            shown = "\n".join((*estimate_lines(first), ""))
            typer.echo(shown, nl=False)

    with waiting(f"estimating {name}", hint, show=show):
        result = inspect.unwrap(estimate)(  # whose errors name the command's options
            name,
            gpu=gpu.split(","),
            alloc_conf=alloc_conf,
            alternatives=alternatives,
            out=out,
            variants=variants,
            **options,
        )
    text = f"{result}\n".removeprefix(shown) + (f"{origin}\n" if origin else "")
    typer.echo(f"{result.to_json()}\n" if as_json else text, nl=False)
    raise typer.Exit(0 if result.fits else 1)


def _job_options() -> Iterator[inspect.Parameter]:
    """Options from the fields of Job, which have their names, defaults and help."""
    types, defaults = get_type_hints(Job), {field.name: field.default for field in fields(Job)}
    for name, (field, option) in job_options().items():
        flag = typer.Option(f"--{name.replace('_', '-')}", help=option.help)
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if option.derived else defaults[field],
            annotation=Annotated[types[field] | None if option.derived else types[field], flag],
        )


_argument, _model, *_others, _ = inspect.signature(command, eval_str=True).parameters.values()
command.__signature__ = inspect.Signature([_argument, _model, *_job_options(), *_others])  # type: ignore[attr-defined]
