"""`tbmem sweep`: model sizes and context lengths go in; what each really needs comes out, beside what is predicted."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tbmem.cli.arguments import AsJson
from tbmem.errors import UsageError
from tbmem.model.sweep import PASSES, PRECISIONS, Status, SweepCase

if TYPE_CHECKING:
    from tbmem.model.gpus import Gpu
    from tbmem.model.sweep import Sweep, SweepCell

FOLDER = "results/memory_profiling"
_ALL_CONTEXTS = "128,256,512"
_TOO_MANY = 1 << 31
_FILES = (".pickle", ".pkl", ".npz")

Size = Annotated[str | None, typer.Option(help="small, medium, large, xl, 2.7B, gpt2, llama-7b, ...; lists: small,xl.")]
Contexts = Annotated[str | None, typer.Option(help="Tokens of a sample; lists: 128,256.", show_default="512")]


def command(
    model_size: Size = None,
    context_length: Contexts = None,
    batch_size: Annotated[str, typer.Option(help="Samples of a step; lists.")] = "4",
    warmup_steps: Annotated[
        int | None, typer.Option(help="Steps before it is measured.", show_default="5, on the CPU 1", min=1)
    ] = None,
    measure_steps: Annotated[
        int | None, typer.Option(help="Steps that are measured.", show_default="10, on the CPU 1", min=1)
    ] = None,
    profile_type: Annotated[
        str | None, typer.Option(help="forward (without gradients) or training; lists.", show_default="forward")
    ] = None,
    use_mixed_precision: Annotated[
        bool, typer.Option("--use-mixed-precision", help="Run under autocast, in --dtype.")
    ] = False,
    dtype: Annotated[
        str | None,
        typer.Option(help="autocast's: bf16 or fp16; lists, with fp32 to compare: fp32,bf16.", show_default="bf16"),
    ] = None,
    output: Annotated[
        str, typer.Option(metavar="PATH", help="Folder of tables and recordings; of one run also the file itself.")
    ] = FOLDER,
    device: Annotated[str | None, typer.Option(help="cuda, cuda:1, cpu; by default cuda where there is one.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="128, 256 and 512 tokens, forward and training, fp32 and bf16.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a model at several sizes, measure its memory, and put beside it what `tbmem estimate` predicts.

    Exit code 1: a run failed by an error, which its cell tells. Memory that ran out is a result, and none.
    """
    where, notes = _device(device)
    sizes = _sizes(model_size, everything, where, notes)
    contexts = _numbers("--context-length", context_length or (_ALL_CONTEXTS if everything else "512"))
    passes = _words("--profile-type", profile_type or ("forward,training" if everything else "forward"), PASSES)
    precisions = _precisions(dtype, use_mixed_precision, everything)
    on_cpu = where == "cpu"
    cases = [
        SweepCase(
            size=size,
            context=context,
            batch=batch,
            what=what,
            precision=precision,
            device=where,
            warmup=warmup_steps or (1 if on_cpu else 5),
            steps=measure_steps or (1 if on_cpu else 10),
        )
        for size in sizes
        for batch in _numbers("--batch-size", batch_size)
        for context in contexts
        for what in passes
        for precision in precisions
    ]
    if not output.strip():
        raise UsageError("--output is empty: name a folder, or of one run a file.pickle")
    _run(cases, Path(output), where, tuple(notes), as_json)


def _precisions(dtype: str | None, mixed: bool, everything: bool) -> list[str]:
    types = _words("--dtype", dtype or "bf16", tuple(PRECISIONS))
    if everything:
        return list(dict.fromkeys(["fp32", *types]))
    if dtype is not None and not mixed and types != ["fp32"]:
        raise UsageError(f"--dtype {dtype}: is autocast's type; add --use-mixed-precision, without it all is fp32")
    return types if mixed else ["fp32"]


def _run(cases: Sequence[SweepCase], output: Path, device: str, notes: tuple[str, ...], as_json: bool) -> None:
    from tbmem.present.sweep import cell_line
    from tbmem.runtime.sweep import check_sweep, sweep

    file = output if output.suffix in _FILES else None
    if file is not None and len(cases) > 1:
        raise UsageError(f"--output {output}: {len(cases)} runs cannot share a file; name a folder")
    check_sweep(cases, output, file)
    for note in notes:
        print(note, file=sys.stderr)
    folder = output if file is None else None
    done = 0

    def keep(cell: SweepCell, so_far: Sweep) -> None:
        nonlocal done
        done += 1
        # the tables so far are on the disk whenever this ends, also by a kill
        _write(replace(so_far, notes=notes), folder)
        print(cell_line(cell), file=sys.stderr, flush=True)

    try:
        result = sweep(cases, output, gpu=_gpu(device), file=file, on_cell=keep)
    except KeyboardInterrupt:
        kept = f"; their tables are in {folder}" if done and folder is not None else ""
        print(f"interrupted: {done} of {len(cases)} runs were done{kept}", file=sys.stderr)
        raise
    _show(replace(result, notes=notes), folder, as_json)
    failed = sum(cell.status is Status.FAILED for cell in result.cells)
    if failed:
        print(f"{failed} of {len(cases)} runs failed by an error", file=sys.stderr)
        raise typer.Exit(1)


def _write(result: Sweep, folder: Path | None) -> int:
    """Number of files."""
    from tbmem.runtime.sweep_files import texts_of, write_texts

    return len(write_texts(result, folder, texts_of(result))) if folder is not None else 0


def _show(result: Sweep, folder: Path | None, as_json: bool) -> None:
    from tbmem.runtime.sweep_files import texts_of

    texts = texts_of(result)
    written = _write(result, folder)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
        return
    for text in texts.values():
        typer.echo(f"\n{text}")
    recordings = [cell.file for cell in result.cells if cell.file]
    if folder is not None:
        many = f"{len(recordings)} recording{'' if len(recordings) == 1 else 's'}"
        typer.echo(f"\nwrote {written - 1} tables, {many} and sweep.json into {folder}")
    elif recordings:
        typer.echo(f"\nwrote {recordings[0]}")


def _device(wanted: str | None) -> tuple[str, list[str]]:
    import torch

    there = torch.cuda.is_available()
    if wanted is None:
        return ("cuda", []) if there else ("cpu", ["There is no GPU here that torch can use: running on the CPU."])
    kind, _, index = wanted.partition(":")
    if kind not in ("cuda", "cpu") or (index and not (kind == "cuda" and index.isdigit())):
        raise UsageError(f"--device {wanted}: there are cuda, cuda:0, ... and cpu")
    if kind == "cuda" and not there:
        raise UsageError(f"--device {wanted}: torch finds no GPU here; --device cpu runs the same on the CPU")
    if index and int(index) >= torch.cuda.device_count():
        raise UsageError(f"--device {wanted}: there are {torch.cuda.device_count()} GPUs")
    return wanted, []


def _gpu(device: str) -> Gpu | None:
    import torch

    from tbmem.model.gpus import Gpu

    if device == "cpu":
        return None
    properties = torch.cuda.get_device_properties(device)
    capability = (int(properties.major), int(properties.minor))
    return Gpu(name=properties.name, capability=capability, total=int(properties.total_memory), context=0)


def _sizes(given: str | None, everything: bool, device: str, notes: list[str]) -> list[str]:
    if given is not None:
        return _split("--model-size", given)
    if not everything:
        raise UsageError("--model-size is missing: small, medium, large, xl, 2.7B, ...")
    if device == "cpu":
        notes.append("--all takes the model small on the CPU; on a GPU it is 2.7B.")
    return ["small" if device == "cpu" else "2.7B"]


def _split(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(f"{option} is empty")
    return list(dict.fromkeys(words))


def _words(option: str, text: str, allowed: Sequence[str]) -> list[str]:
    words = _split(option, text)
    for word in words:
        if word not in allowed:
            raise UsageError(f"{option} {word}: there are {', '.join(allowed)}")
    return words


def _numbers(option: str, text: str) -> list[int]:
    words = _split(option, text)
    for word in words:
        if not (word.isascii() and word.isdigit() and 0 < int(word) < _TOO_MANY):
            raise UsageError(f"{option} {word}: whole numbers from 1 on, such as 128,256")
    return [int(word) for word in words]
