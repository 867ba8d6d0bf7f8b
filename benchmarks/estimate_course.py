"""Estimates against two snapshots of a real GPU, whose code is public: a course's language model of medium size.

    PYTHONPATH=CHECKOUT/cs336-basics python benchmarks/estimate_course.py

CHECKOUT is a copy of github.com/Wedsonlin/assignment2-systems; its own model, optimizer and loss are run, which need
einops, einx and jaxtyping (pip install). The snapshots
are those of the corpus (TBMEM_CORPUS, else ../shared/corpus). The GPU was older than Hopper, as its workspaces show.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import torch
from allocator import recordings
from allocator_rewind import rewind
from allocator_state import seed
from harness import fake_run, heading, table
from torch import nn

from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.replay import replay
from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.fit import estimate_from_run
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.units import MIB

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "inference, 128 tokens": (
        "Wedsonlin__medium_128_inference_memory_snapshot__77da8fe.pickle",
        {"sequence": 128, "inference": True},
    ),
    "training, 512 tokens, bf16 autocast": (
        "Wedsonlin__medium_512_training_memory_snapshot__61dcd14.pickle",
        {"sequence": 512, "amp": "bfloat16"},
    ),
}
_held: dict[str, torch.Tensor] = {}
"""The course's loop keeps a step's output and loss until the next step replaces them."""


class TokensOnly(nn.Module):
    """The model takes tokens and leaves targets to the loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> Any:
        """Logits."""
        del targets
        return self.model(tokens)


def make(batch: int, seq: int) -> dict[str, Any]:
    from cs336_basics.model import BasicsTransformerLM
    from cs336_basics.nn_utils import cross_entropy
    from cs336_basics.optimizer import AdamW

    model = BasicsTransformerLM(
        vocab_size=10_000, context_length=seq, d_model=1024, num_layers=24, num_heads=16, d_ff=4096
    )
    tokens = torch.zeros(batch, seq, dtype=torch.int64)

    def loss(output: torch.Tensor, given: Any) -> torch.Tensor:
        _held["output"] = output
        _held["loss"] = cross_entropy(output, given[1])
        return _held["loss"]

    return {"model": TokensOnly(model), "batch": (tokens, tokens.clone()), "loss": loss, "optimizer": AdamW}


def recorded(path: Path) -> tuple[int, int]:
    """Allocated and reserved peak of a snapshot."""
    ((segments, events, settings),) = recordings(path)
    start = rewind(segments, events, settings)
    allocator = CachingAllocator(settings)
    replay(events, allocator=allocator, live=seed(allocator, start.segments, start.bases))
    return allocator.peak_allocated, allocator.peak_reserved


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    missing = [name for name in ("cs336_basics", "einops", "einx", "jaxtyping") if not importlib.util.find_spec(name)]
    if missing:
        print(f"{', '.join(missing)} cannot be imported: --help says what is needed", file=sys.stderr)
        return 2
    project = Path(__file__).parent.parent
    corpus = Path(os.environ.get("TBMEM_CORPUS", project.parent / "shared" / "corpus"))
    rows, good = [], True
    for name, (file, fields) in CASES.items():
        path = corpus / "snapshots" / file
        if not path.exists():
            print(f"{path} is not here: skipped", file=sys.stderr)
            continue
        gpu = gpu_named("a100-80gb")
        job = Job(
            model="estimate_course:make",
            search_path=str(Path(__file__).parent),
            batch=4,
            steps=3,
            **fields,
        ).on(gpu)
        allocated, reserved = recorded(path)
        result = estimate_from_run(job, fake_run(job), AllocatorSettings(), gpu)
        errors = result.peak_allocated / allocated - 1, result.peak_reserved / reserved - 1
        good &= abs(errors[0]) <= 0.005 and abs(errors[1]) <= 0.01
        rows.append(
            [
                name,
                f"{allocated / MIB:.2f}",
                f"{result.peak_allocated / MIB:.2f}",
                f"{errors[0]:+.3%}",
                f"{reserved / MIB:.0f}",
                f"{result.peak_reserved / MIB:.0f}",
                f"{errors[1]:+.2%}",
            ]
        )
    print(heading("Estimated against a real GPU"))
    header = "run,allocated MiB,estimated,error,reserved MiB,estimated,error"
    print(table(header.split(","), rows))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
