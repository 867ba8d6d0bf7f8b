"""The command `tbmem sweep`: runs models at several sizes and shows measured beside predicted memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tbmem.cli.arguments import AsJson
from tbmem.errors import UsageError
from tbmem.model.job import DTYPES, short_dtype
from tbmem.model.sweep import PASSES, Status, SweepCase
from tbmem.requirements import TorchFeature

if TYPE_CHECKING:
    from tbmem.model.gpus import Gpu
    from tbmem.model.sweep import SweepCell

FOLDER = "results/memory_profiling"
_TOO_MANY = 1 << 31

Size = Annotated[str | None, typer.Option(help="small, medium, large, xl, 2.7B, gpt2, llama-7b, ...; lists: small,xl.")]


def command(
    model_size: Size = None,
    context_length: Annotated[str, typer.Option(help="Tokens per sample; lists: 128,256.")] = "512",
    batch_size: Annotated[str, typer.Option(help="Samples per step; lists.")] = "4",
    warmup_steps: Annotated[
        int | None, typer.Option(help="Steps before the measurement.", show_default="5, on the CPU 1", min=1)
    ] = None,
    measure_steps: Annotated[
        int | None, typer.Option(help="Measured steps.", show_default="10, on the CPU 1", min=1)
    ] = None,
    profile_type: Annotated[str, typer.Option(help="forward (without gradients) or training; lists.")] = "forward",
    use_mixed_precision: Annotated[
        bool, typer.Option("--use-mixed-precision", help="Run under autocast, in --dtype.")
    ] = False,
    dtype: Annotated[
        str | None,
        typer.Option(help="autocast type: bf16 or fp16; lists, with fp32 to compare: fp32,bf16.", show_default="bf16"),
    ] = None,
    output: Annotated[
        str, typer.Option(metavar="PATH", help="Folder for tables and recordings; of one run also the file itself.")
    ] = FOLDER,
    device: Annotated[str | None, typer.Option(help="cuda, cuda:1, cpu; by default cuda if available.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model's memory at several sizes and compare it with what `tbmem estimate` predicts.

    Exit code 1: a run failed with an error, shown in its cell. Running out of memory is a result, not an error.
    """
    target, notes = _device(device)
    if model_size is None:
        raise UsageError("--model-size is missing: small, medium, large, xl, 2.7B, ...")
    if not output.strip():
        raise UsageError("--output is empty: name a folder, or of one run a file.pickle")
    types = ",".join(short_dtype(word.strip()) for word in (dtype or "bf16").split(","))
    precisions = _words("--dtype", types, tuple(DTYPES)) if use_mixed_precision or dtype else ["fp32"]
    if not use_mixed_precision and precisions != ["fp32"]:
        raise UsageError(f"--dtype {dtype}: is autocast's type; add --use-mixed-precision, without it all is fp32")
    contexts, batches = _numbers("--context-length", context_length), _numbers("--batch-size", batch_size)
    warmup, steps = (1, 1) if target == "cpu" else (5, 10)
    run: dict[str, Any] = {"device": target, "warmup": warmup_steps or warmup, "steps": measure_steps or steps}
    cases = [
        SweepCase(size=size, context=context, batch=batch, what=what, precision=precision, **run)
        for size in _words("--model-size", model_size)
        for batch in batches
        for context in contexts
        for what in _words("--profile-type", profile_type, PASSES)
        for precision in precisions
    ]
    _run(cases, Path(output), target, notes, as_json)


def _run(cases: Sequence[SweepCase], output: Path, device: str, notes: tuple[str, ...], as_json: bool) -> None:
    TorchFeature.ESTIMATE.require()
    from tbmem.estimator.sweep import render_tables, sweep, tables_folder, to_json
    from tbmem.present.text.sweep import cell_line

    results = sweep(cases, output, _gpu(device), notes)
    for note in notes:
        print(note, file=sys.stderr)
    cells: tuple[SweepCell, ...] = ()
    try:
        for result in results:
            cells = result.cells
            print(cell_line(cells[-1]), file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        kept = f"; their tables are in {output}" if cells and tables_folder(output) else ""
        print(f"interrupted: {len(cells)} of {len(cases)} runs were done{kept}", file=sys.stderr)
        raise
    if as_json:
        typer.echo(to_json(result))
    else:
        texts = render_tables(result)
        for text in texts.values():
            typer.echo(f"\n{text}")
        recordings = [cell.file for cell in cells if cell.file]
        if tables_folder(output) is not None:
            count = f"{len(recordings)} recording{'' if len(recordings) == 1 else 's'}"
            typer.echo(f"\nwrote {len(texts)} tables, {count} and sweep.json into {output}")
        elif recordings:
            typer.echo(f"\nwrote {recordings[0]}")
    failed = sum(cell.status is Status.FAILED for cell in cells)
    if failed:
        print(f"{failed} of {len(cases)} runs failed by an error", file=sys.stderr)
        raise typer.Exit(1)


def _device(wanted: str | None) -> tuple[str, tuple[str, ...]]:
    import torch

    has_gpu = torch.cuda.is_available()
    if wanted is None:
        return ("cuda", ()) if has_gpu else ("cpu", ("There is no GPU here that torch can use: running on the CPU.",))
    kind, _, index = wanted.partition(":")
    if kind not in ("cuda", "cpu") or (index and not (kind == "cuda" and index.isdigit())):
        raise UsageError(f"--device {wanted}: there are cuda, cuda:0, ... and cpu")
    if kind == "cuda" and not has_gpu:
        raise UsageError(f"--device {wanted}: torch finds no GPU here; --device cpu runs the same on the CPU")
    if index and int(index) >= torch.cuda.device_count():
        raise UsageError(f"--device {wanted}: there are {torch.cuda.device_count()} GPUs")
    return wanted, ()


def _gpu(device: str) -> Gpu | None:
    import torch

    from tbmem.model.gpus import Gpu

    if device == "cpu":
        return None
    properties = torch.cuda.get_device_properties(device)
    capability = (int(properties.major), int(properties.minor))
    return Gpu(
        name=properties.name,
        capability=capability,
        total=int(properties.total_memory),
        context=0,
        multiprocessors=int(properties.multi_processor_count),
        device_name=properties.name,
    )


def _words(option: str, text: str, allowed: Sequence[str] = ()) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(f"{option} is empty")
    for word in words:
        if allowed and word not in allowed:
            raise UsageError(f"{option} {word}: there are {', '.join(allowed)}")
    return list(dict.fromkeys(words))


def _numbers(option: str, text: str) -> list[int]:
    words = _words(option, text)
    for word in words:
        if not (word.isascii() and word.isdigit() and 0 < int(word) < _TOO_MANY):
            raise UsageError(f"{option} {word}: whole numbers from 1 on, such as 128,256")
    return [int(word) for word in words]
