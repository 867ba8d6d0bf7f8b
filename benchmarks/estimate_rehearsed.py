"""Estimates beside the same trainings on the device that torch sees: a real GPU, or a rehearsed one.

    python benchmarks/estimate_rehearsed.py [OUT_FOLDER] [--only TEXT]

Each training runs three steps in a process of its own, so that the allocator begins empty. One rank of several runs
alone: torch's own classes over a process group whose other ranks do not exist. The table is printed and, with
OUT_FOLDER, kept there (``estimates.txt``, ``estimates.json``). Exit code 0: each difference is at most 0.5 % of
allocated and 1 % of reserved bytes, or a note of the estimate names it; 1: one is not; 2: there is no GPU here.
Trainings whose package (transformers, peft) is not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import estimate_accuracy
import torch
from harness import heading, table

from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.fit import estimate_from_run
from tbmem.errors import UsageError
from tbmem.estimator.worker import simulate_jobs
from tbmem.model.gpus import Gpu
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.units import MIB

STEPS = 3
LIMITS = {"allocated": 0.005, "reserved": 0.01}
NOTED = ("is not counted", "was left out", "of its own size")
"""What a note says that names a difference."""
_MISSING = re.compile(r"No module named|needs (transformers|peft)|pip install (transformers|peft)")
"""Errors of a training whose package is not installed."""
HERE = Path(__file__).parent

_LLAMA = {
    **{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 8},
    **{"num_key_value_heads": 8, "intermediate_size": 688, "vocab_size": 4000, "max_position_embeddings": 256},
}
_GROUPED = {"num_attention_heads": 8, "num_key_value_heads": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "qwen2": {**_LLAMA, **_GROUPED, "model_type": "qwen2"},
    "gpt2": {"model_type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 8, "vocab_size": 4000, "n_positions": 256},
    "bert": {
        **{"model_type": "bert", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 8},
        **{"intermediate_size": 1024, "vocab_size": 4000, "architectures": ["BertForMaskedLM"]},
    },
}
"""Config files of transformers."""
_TOKENS = {"batch": 8, "sequence": 128}
TRAININGS: dict[str, dict[str, Any]] = {
    **estimate_accuracy.CASES,
    "GPT, fp16 autocast": {"model": "gpt", "amp": "float16"},
    "GPT, fp16 autocast, clipped": {"model": "gpt", "amp": "float16", "clip": 1.0},
    "GPT, bf16 autocast, checkpointed": {"model": "gpt", "amp": "bfloat16", "checkpoint": True},
    "Llama with grouped heads, bf16": {"model": "llama_gqa", "dtype": "bfloat16"},
    "RMS norm, SiLU and Mish, bf16": {"model": "normed_decoder", "dtype": "bfloat16"},
    "RMS norm, SiLU and Mish, bf16 autocast": {"model": "normed_decoder", "amp": "bfloat16"},
    "encoder with dropout, bf16 autocast": {"model": "encoder", "amp": "bfloat16"},
    "ViT, fp16 autocast": {"model": "vit", "amp": "float16"},
    "ConvNet": {"model": "convnet"},
    "diffusion U-Net": {"model": "diffusion"},
    "LSTM, bf16 autocast": {"model": "lstm", "amp": "bfloat16"},
    "LSTM, inference": {"model": "lstm", "inference": True},
    "1-D convolutions and GRU": {"model": "speech", "optimizer": "momentum"},
    "1-D convolutions and GRU, fp16 autocast": {"model": "speech", "amp": "float16", "clip": 1.0},
    "U-Net, fp16 autocast": {"model": "unet", "amp": "float16"},
    "ResNet, bf16 autocast, SGD with momentum": {"model": "resnet", "amp": "bfloat16", "optimizer": "momentum"},
    "ResNet, accumulated, with averaged weights": {"model": "averaged_resnet"},
    "embedding bags, Adagrad": {"model": "embedding_bags", "optimizer": "adagrad"},
    "MoE, bf16, SGD with momentum": {"model": "moe", "dtype": "bfloat16", "optimizer": "momentum"},
    "translation, fused AdamW, bf16 autocast": {"model": "translation", "amp": "bfloat16", "implementation": "fused"},
    "LoRA by peft": {"model": "peft_lora"},
    "GPT, inference": {"model": "gpt", "inference": True},
    "ViT, inference, fp16 autocast": {"model": "vit", "inference": True, "amp": "float16"},
    "KV cache": {"model": "kv_cache", "inference": True},
    "MLP, compiled": {"model": "compiled_mlp"},
    "config: Llama": {"config": "llama", **_TOKENS},
    "config: Llama, bf16 autocast": {"config": "llama", "amp": "bfloat16", **_TOKENS},
    "config: Llama, bf16, checkpointed": {"config": "llama", "dtype": "bfloat16", "checkpoint": True, **_TOKENS},
    "config: Qwen2": {"config": "qwen2", **_TOKENS},
    "config: GPT-2": {"config": "gpt2", **_TOKENS},
    "config: BERT": {"config": "bert", **_TOKENS},
    "config: Llama, fp16 autocast, accumulated": {
        **{"config": "llama", "batch": 9, "sequence": 93, "accumulate": 3, "amp": "float16"},
    },
    "config: Qwen2, bf16, Adafactor": {
        **{"config": "qwen2", "dtype": "bfloat16", "optimizer": "adafactor", "batch": 5, "sequence": 111},
    },
    "config: BERT, for-loop AdamW, checkpointed": {
        **{"config": "bert", "implementation": "for-loop", "checkpoint": True, "batch": 6, "sequence": 77},
    },
    "config: GPT-2, RMSprop, clipped": {"config": "gpt2", "optimizer": "rmsprop", "clip": 1.0, **_TOKENS},
    "DDP 2, accumulated": {"model": "wide_llama", "batch": 8, "replicate": 2, "accumulate": 2},
    "DDP 8": {"model": "wide_llama", "batch": 8, "replicate": 8},
    "FSDP2 2": {"model": "wide_llama", "batch": 8, "fsdp": 2},
    "FSDP2 8, bf16 policy": {"model": "wide_llama", "batch": 8, "fsdp": 8, "amp": "bfloat16"},
    "FSDP2 64": {"model": "wide_llama", "batch": 8, "fsdp": 64},
    "FSDP2 16, three samples": {"model": "wide_llama", "batch": 3, "fsdp": 16},
    "HSDP 4 x 8": {"model": "wide_llama", "batch": 8, "fsdp": 8, "replicate": 4},
    "FSDP2 8, checkpointed": {"model": "wide_llama", "batch": 8, "fsdp": 8, "checkpoint": True},
    "TP 4": {"model": "wide_llama", "batch": 8, "tensor": 4},
    "TP 2 x FSDP2 4": {"model": "wide_llama", "batch": 8, "tensor": 2, "fsdp": 4},
    "1F1B 4, first stage": {"builtin": "small", "sequence": 128, "batch": 8, "pipeline": 4, "microbatches": 8},
    "1F1B 4, last stage": {
        "builtin": "small",
        "sequence": 128,
        "batch": 8,
        "pipeline": 4,
        "microbatches": 8,
        "rank": 3,
    },
}


def job_of(case: dict[str, Any], configs: Path, gpu: Gpu) -> Job:
    """The job of a training, on the GPU that is here; ``configs``: the folder with the config files."""
    options = dict(case)
    if config := options.pop("config", ""):
        options["model"] = str(configs / f"{config}.json")
    elif "builtin" in options:
        options["model"] = options.pop("builtin")
    else:
        options["model"] = f"estimate_models:{options['model']}"
    ranks = math.prod(options.get(name, 1) for name in ("replicate", "fsdp", "tensor", "pipeline"))
    return Job(**options, search_path=str(HERE), world_size=ranks, steps=STEPS).on(gpu)


def gpu_here() -> Gpu | None:
    """The GPU, asked by another process: this one must not use it, since it forks."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    name, major, minor, total, multiprocessors = json.loads(done.stdout.splitlines()[-1])
    return Gpu(
        name=name,
        device_name=name,
        capability=(major, minor),
        multiprocessors=multiprocessors,
        total=total,
        context=0,
    )


_ASK = """
import json, torch
one = torch.cuda.get_device_properties(0)
print(json.dumps([one.name, one.major, one.minor, one.total_memory, one.multi_processor_count]))
"""


def really_run(job: Job) -> None:
    """All steps of a job on the device."""
    from tbmem.estimator.sweep import NullObserver
    from tbmem.estimator.workload.train_step import Training
    from tbmem.estimator.workload.workload import make_workload

    torch.manual_seed(0)
    if job.world_size == 1:
        Training(job, make_workload(job), NullObserver()).run()
    else:
        _run_rank(job)
    torch.cuda.synchronize()


def _run_rank(job: Job) -> None:
    import estimate_ranks
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=job.rank, world_size=job.world_size, store=FakeStore())
    step = estimate_ranks.step_of(job)
    for _ in range(job.steps):
        step()
    dist.destroy_process_group()


def estimated(job: Job, run: SimulatedRun | UsageError, gpu: Gpu) -> dict[str, Any]:
    """Peaks in bytes, and notes that name a difference."""
    if isinstance(run, UsageError):
        return {"error": str(run)}
    result = estimate_from_run(job, run, AllocatorSettings(), gpu)
    notes = [note for note in result.notes if any(words in note for words in NOTED)]
    return {"fake": {"allocated": result.peak_allocated, "reserved": result.peak_reserved}, "notes": notes}


def measured(job: Job) -> dict[str, Any]:
    """Peaks in bytes, as torch counts them in a process of its own; what went wrong as text."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_measure, args=(job, theirs))
    process.start()
    theirs.close()
    try:
        found: dict[str, Any] = ours.recv() if ours.poll(300) else {"error": "not done after 300 s"}
    except EOFError:
        process.join()
        found = {"error": f"the process ended with {process.exitcode}"}
    process.kill()
    process.join()
    return found


def _measure(job: Job, answers: Connection) -> None:
    try:
        really_run(job)
        peaks = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        answers.send({"real": peaks})
    except BaseException as error:
        answers.send({"error": (str(error).strip().splitlines() or [repr(error)])[0]})
    # an answer is all that is needed of it
    os._exit(0)


def difference(result: dict[str, Any], what: str) -> float:
    """Of the estimate, relative to the real run."""
    return float(result["fake"][what] / result["real"][what] - 1)


def verdict(result: dict[str, Any]) -> str:
    """Whether a training is within the limits, or its difference is in a note."""
    if "error" in result:
        return "left out" if _MISSING.search(result["error"]) else "did not run"
    if all(abs(difference(result, what)) <= limit for what, limit in LIMITS.items()):
        return "within"
    return "noted" if result["notes"] else "differs"


def row_of(result: dict[str, Any]) -> list[str]:
    """A line of the table."""
    if "error" in result:
        return [result["name"], result["error"][:100], *[""] * 5, verdict(result)]
    cells = [result["name"]]
    for what in LIMITS:
        real, fake = result["real"][what], result["fake"][what]
        cells += [f"{real / MIB:.2f}", f"{fake / MIB:.2f}", f"{difference(result, what):+.2%}"]
    return [*cells, verdict(result)]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", nargs="?", type=Path)
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    gpu = gpu_here()
    if gpu is None:
        print("estimate_rehearsed: there is no GPU that torch can use here")
        return 2
    return compare([name for name in TRAININGS if given.only in name], gpu, given.folder)


def compare(names: list[str], gpu: Gpu, folder: Path | None) -> int:
    """Print and keep the table; returns the exit code."""
    with tempfile.TemporaryDirectory() as configs:
        for name, config in CONFIGS.items():
            Path(configs, f"{name}.json").write_text(json.dumps(config))
        jobs = [job_of(TRAININGS[name], Path(configs), gpu) for name in names]
        runs = simulate_jobs(jobs, timeout=3600)
        results = [
            {"name": name, **measured(job), **estimated(job, run, gpu)}
            for name, job, run in zip(names, jobs, runs, strict=True)
        ]
    header = "training,allocated MiB,estimated,difference,reserved MiB,estimated,difference,verdict"
    title = f"Estimated beside run on {gpu.name}"
    text = f"{heading(title)}\n{table(header.split(','), [row_of(one) for one in results])}"
    verdicts = [verdict(result) for result in results]
    counts = ", ".join(
        f"{verdicts.count(word)} {word}" for word in ("within", "noted", "differs", "left out", "did not run")
    )
    text = f"{text}\n\n{len(results)} trainings: {counts}"
    print(text)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "estimates.txt").write_text(f"{text}\n")
        (folder / "estimates.json").write_text(json.dumps(results, indent=2))
    return 0 if set(verdicts) <= {"within", "noted", "left out"} else 1


if __name__ == "__main__":
    sys.exit(main())
