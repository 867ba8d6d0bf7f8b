"""Memory that projects published for their trainings, and how each was got: the rows of published_tables.py."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from rehearsal_cases import Edit, Source

from tbmem.units import GIB, MIB

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Table:
    """A published table."""

    name: str
    page: str
    figure: Literal["allocated", "reserved"]
    unit: int  # bytes
    unit_name: str
    context: int = 0  # bytes that the figures include besides: the page says how many

    def figure_of(self, result: dict[str, int]) -> float:
        """What the table would say of a rehearsal."""
        return (result[f"peak_{self.figure}"] + self.context) / self.unit


@dataclass(frozen=True)
class Row:
    """One figure, and how to rehearse it."""

    table: Table
    name: str
    published: float | None  # in the table's unit; None: it ran out of memory
    script: str  # path in the source
    gpu: str
    options: tuple[str, ...] = ()
    source: Source | None = None  # None: the script is one of this project
    files: tuple[str, ...] = ()  # patterns of what it needs of the source besides Python files
    edits: tuple[Edit, ...] = ()
    also: tuple[Source, ...] = ()  # other repositories from which it imports
    prepare: Callable[[Path], None] = lambda folder: None  # puts stand-ins for data and weights into a folder
    world: int = 1
    cause: str = ""  # why its figure is another


LIT_GPT = Table(
    "lit-gpt",
    "github.com/Lightning-AI/litgpt, tutorials/resource-tables.md",
    "allocated",
    10**9,
    "GB",
)
BERT = Table(
    "BERT-large, Trainer",
    "huggingface.co/docs/transformers/v4.21.0/perf_train_gpu_one",
    "reserved",
    MIB,
    "MiB",
    context=1343 * MIB,
)
TORCHTITAN = Table(
    "torchtitan, Llama 3.1 8B",
    "github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md",
    "reserved",
    GIB,
    "GiB",
)

_NAMED = Source("Lightning-AI/litgpt", "8641822b3249bb94f068c254aa5d13decbc9f0a0")
_LATER = Source("Lightning-AI/litgpt", "0cc02afa1dca7434418cf612690da13d38d294fd")
_AO = Source("pytorch/ao", "eab345c2268a7506355d506ebfc27b5d28e5e7d0")
_TITAN = Source("pytorch/torchtitan", "9dec370ad26b5f8e9a7333a0e36165018262644b")


def lit_gpt_inputs(folder: Path, model: str, longest: int) -> None:
    """A checkpoint without weights, a tokenizer of two words, and data whose longest sample has so many tokens."""
    checkpoint, data = folder / "checkpoints" / model, folder / "data"
    for path in (checkpoint, data):
        path.mkdir(parents=True)
    torch.save({}, checkpoint / "lit_model.pth")
    for name in ("lit_config.json", "tokenizer_config.json"):
        (checkpoint / name).write_text("{}")
    words = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    (checkpoint / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": words}))
    for name, lengths in (("train", [longest, *[200] * 5000]), ("test", [200] * 20)):
        rows = {length: torch.zeros(length, dtype=torch.int) for length in set(lengths)}
        torch.save([{"input_ids": rows[length], "labels": rows[length]} for length in lengths], data / f"{name}.pt")


def torchtitan_inputs(folder: Path) -> None:
    """A tokenizer of 128,000 words, as Llama 3's, and a text."""
    pairs = (bytes(pair) for length in (1, 2, 3) for pair in itertools.product(range(256), repeat=length))
    lines = [f"{base64.b64encode(word).decode()} {rank}" for rank, word in zip(range(128_000), pairs, strict=False)]
    (folder / "tokenizer.model").write_text("\n".join(lines))
    (folder / "texts").mkdir()
    (folder / "texts" / "data.json").write_text(f"{json.dumps({'text': 'words of a text ' * 1000})}\n" * 100)


def _lit_gpt(model: str, longest: int, method: str, micro_batch: int, published: float | None) -> Row:
    file = f"finetune/{method}.py"
    accumulated, batch, iterations = {
        "lora": (128, 4, "max_iters = 50000"),
        "adapter": (64, 4, "max_iters = num_epochs"),
        "adapter_v2": (128, 2, "max_iters = num_epochs"),
    }[method]
    return Row(
        LIT_GPT,
        f"{model}, {method}, micro batch {micro_batch}",
        published,
        file,
        "a100-40gb",
        source=_NAMED,
        options=tuple(
            f"--data_dir data --out_dir out --precision bf16-true --checkpoint_dir checkpoints/{model}".split()
        ),
        edits=(
            Edit(file, f"\nmicro_batch_size = {batch}", f"\nmicro_batch_size = {micro_batch}", "the row's micro batch"),
            Edit(file, f"\nbatch_size = {accumulated}", f"\nbatch_size = {micro_batch}", _SHORT),
            Edit(file, f"\n{iterations}", f"\nmax_iters = 2  # {iterations}", _SHORT),
            Edit(file, "\neval_iters = 100", "\neval_iters = 2", _SHORT),
            Edit(file, "\neval_max_new_tokens = 100", "\neval_max_new_tokens = 2", _SHORT),
        ),
        prepare=partial(lit_gpt_inputs, model=model, longest=longest),
    )


_SHORT = "two steps of one micro batch and a short evaluation: the longest sample comes first"
_FP32_NORM = (
    "Llama's RMSNorm keeps its input in fp32 since commit 6178c7c, four days after the date on the page: with the code"
    " of the commit that published the table the figure is the published one"
)


def _llama_rows(rows: list[Row]) -> Iterator[Row]:
    """Each row with the commit that the page names, and with the one that published it."""
    for row in rows:
        yield replace(row, cause=_FP32_NORM)
        yield replace(row, name=f"{row.name}, at {_LATER.commit[:7]}", source=_LATER)


_TODAY = (
    "torch 2.14 and transformers 5 keep less than torch 1.10 and transformers 4.16 did: no attention matrices (SDPA),"
    " no input of softmax, no gradients between the steps (--as-in-2022 keeps them)"
)


def _bert(published: float, *options: str) -> Row:
    words = " ".join(options).replace("--", "").replace("batch 1 accumulate 4", "batch 1 of 4") or "batch 4"
    script = str(PROGRAMS / "bert_trainer.py")
    return Row(BERT, words, published, script, "v100-16gb", options=("--as-in-2022", *options))


_FLASH = Edit(
    "train.py",
    "    init_logger()\n",
    "    init_logger()\n    torch.backends.cuda.enable_cudnn_sdp(False)\n",
    "torch of December 2024 took flash attention on an H100; cuDNN's, which torch takes now, is not in the program's"
    " list of operations whose results are saved",
)


_COMPILED = "--training.compile"
_FLOAT8 = (
    f"{_COMPILED} --float8.enable_float8_linear --float8.enable_fsdp_float8_all_gather"
    " --float8.precompute_float8_dynamic_scale_for_fsdp"
)
_LONG = f"--training.batch_size 1 --training.seq_len 32768 --activation_checkpoint.mode full {_FLOAT8}"


def _titan(ranks: int, name: str, published: float, options: str = "") -> Row:
    config = "--job.config_file {program}/train_configs/llama3_8b.toml --model.tokenizer_path tokenizer.model"
    data = "--training.dataset c4_test --training.dataset_path texts --training.batch_size 2"
    return Row(
        TORCHTITAN,
        f"{ranks} GPUs, {name}",
        published,
        "train.py",
        "h200-141gb",
        options=tuple(f"{config} {data} {options}".split()),
        source=_TITAN,
        also=(_AO,),
        files=("*.toml",),
        edits=(_FLASH,),
        prepare=torchtitan_inputs,
        world=ranks,
    )


_ONE_SAMPLE = ("--batch", "1", "--accumulate", "4")
_CHECKPOINTED = (*_ONE_SAMPLE, "--checkpoint")
ROWS: tuple[Row, ...] = (
    *(_lit_gpt("phi-1_5", 1044, "lora", batch, figure) for batch, figure in ((1, 4.82), (2, 6.76), (4, 10.68))),
    *(
        _lit_gpt("stablelm-base-alpha-3b", 1034, "lora", batch, figure)
        for batch, figure in ((1, 9.69), (2, 12.10), (4, 16.92))
    ),
    *_llama_rows(
        [
            _lit_gpt("Llama-2-7b-hf", 1304, "lora", 1, 21.30),
            _lit_gpt("Llama-2-7b-hf", 1304, "lora", 2, 29.07),
            _lit_gpt("Llama-2-13b-hf", 1304, "lora", 1, 38.12),
        ]
    ),
    _lit_gpt("Llama-2-7b-hf", 1304, "lora", 4, None),
    _lit_gpt("Llama-2-13b-hf", 1304, "lora", 2, None),
    _lit_gpt("stablelm-base-alpha-3b", 1034, "adapter", 1, 9.10),
    _lit_gpt("stablelm-base-alpha-3b", 1034, "adapter_v2", 1, 10.71),
    *_llama_rows(
        [
            _lit_gpt("Llama-2-7b-hf", 1304, "adapter", 1, 19.98),
            _lit_gpt("Llama-2-7b-hf", 1304, "adapter_v2", 1, 25.51),
        ]
    ),
    _bert(14949),
    replace(_bert(14949), name="batch 4, as by default today", options=(), cause=_TODAY),
    _bert(8681, *_ONE_SAMPLE),
    _bert(6775, *_CHECKPOINTED),
    _bert(13939, "--fp16"),
    _bert(7275, *_CHECKPOINTED, "--fp16"),
    _bert(12295, "--adafactor"),
    _bert(4847, *_CHECKPOINTED, "--fp16", "--adafactor"),
    _titan(8, "FSDP", 82.4),
    replace(_titan(8, "FSDP, cuDNN's attention", 82.4), edits=(), cause=_FLASH.reason),
    _titan(8, "FSDP, torch.compile", 77.0, _COMPILED),
    _titan(8, "FSDP, torch.compile, float8", 76.8, _FLOAT8),
    _titan(8, "the same, 32,768 tokens, all recomputed", 83.9, _LONG),
    _titan(128, "FSDP", 67.0),
    _titan(128, "FSDP, torch.compile", 62.0, _COMPILED),
    _titan(128, "FSDP, torch.compile, float8", 61.8, _FLOAT8),
)
