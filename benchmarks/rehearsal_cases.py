"""Public programs beside which their authors put the memory snapshot of a real GPU: what rehearsal_truth.py runs."""

from __future__ import annotations

from dataclasses import dataclass

PACKAGES = ("cs336_basics", "cs336-systems")
"""Packages of a course, which ask for their own version: run from a folder, they have none."""


@dataclass(frozen=True)
class Source:
    """A commit of a repository on GitHub."""

    repository: str  # 'owner/name'
    commit: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.commit[:7]}"


@dataclass(frozen=True)
class Edit:
    """A change without which the program does not do here what it did when the snapshot was made."""

    file: str  # in the case's first source
    old: str
    new: str
    reason: str


@dataclass(frozen=True)
class Case:
    """One recording of a real GPU, and how it was made."""

    name: str
    source: Source
    snapshot: str  # path in the source
    script: str  # path in the source
    options: tuple[str, ...]
    writes: str  # where the program puts its snapshot, from the folder in which it runs
    torch: str  # the version that the author's lock file names
    gpu: str = "rtx4090-24gb"
    """A GPU of tbmem with the cuBLAS workspace of the recording: 32 MiB on an H100, 8.125 MiB on older ones."""
    paths: tuple[str, ...] = ("",)  # folders of the source from which the program imports
    also: tuple[Source, ...] = ()  # other repositories from which it imports
    edits: tuple[Edit, ...] = ()
    host_gib: float = 4  # memory of the host that the program itself needs
    other_torch: str = ""  # what another version of torch does differently
    cause: str = ""  # why a figure differs with the author's own torch


WEDSONLIN = Source("Wedsonlin/assignment2-systems", "8630bcfe2d6f1c1f4b30a13bd611319d0329ec74")
NIU = Source("NiuHuangxiaozi/assignment2-systems", "9d868b9b14635370edf772e4c348bb6f17a209f4")
MAGMA = Source("MAGMA27/assignment2-systems", "15883f2b1d6bc52439d8935e280bce430151f361")
CHARAN = Source("Charan6924/assignment2-systems", "4e7e497ce83d853b43a4a2f3de7c551319db6a41")
SILMONT = Source("silmont2000/assignment2-systems", "133f0643dd71416aa44409daafcf97e11078f3b9")
BCRAFTON = Source("bcrafton/assignment2-systems", "0c0e8a736edbf5f55ec1a3536fd0f126a9eb9ee9")
KKAITLYN = Source("kkaitlyn111/cs336-a2-systems", "ebf6548bcf41f68a5d64bb6be81cdf99d7dc86dc")
KKAITLYN_MODEL = Source("kkaitlyn111/cs336-assignment1", "e6dc1418ec46bfbd873c0c7984b57b73c40f8ce1")

_QUOTES = Edit(
    "cs336_systems/nsys_profile.py",
    """model.config["context_length"]}_""",
    """model.config['context_length']}_""",
    "equal quotes inside an f-string need Python 3.12",
)
_DRIVER = (
    "addresses: of equally large free blocks the allocator takes the lowest, and before the recording that cost one"
    " segment of 40 MiB more; with segments at random addresses it is equal (3 of 3), in order of address it is not"
)
_ONE_RUN = (
    Edit(
        "cs336_systems/benchmark.py",
        "context_lengths = [128, 256, 512]",
        "context_lengths = [128]",
        "only the first run",
    ),
    Edit(
        "cs336_systems/benchmark.py",
        "for forward_only in [True, False]",
        "for forward_only in [True]",
        "only the first run",
    ),
)


def _wedsonlin(tokens: int, pattern: str, amp: bool = False) -> Case:
    kind = {"forward-only": "inference", "full-training-step": "training"}[pattern]
    sizes = "--d_model 1024 --d_ff 4096 --num_layers 24 --num_heads 16 --model_name medium --memory-profile true"
    autocast = "true" if amp else "false"
    return Case(
        name=f"{kind}, {tokens} tokens{', bf16 autocast' if amp else ''}",
        source=WEDSONLIN,
        snapshot=f"results/medium_{tokens}_{kind}_memory_snapshot.pickle",
        script="cs336_systems/nsys_profile.py",
        options=(*sizes.split(), "--context_length", str(tokens), "--pattern", pattern, "--autocast", autocast),
        writes=f"../results/medium_{tokens}_{kind}_memory_snapshot.pickle",
        torch="2.11.0",
        gpu="l40s-48gb",
        paths=("cs336-basics",),
        edits=(_QUOTES,),
        cause=_DRIVER if (tokens, kind) == (256, "training") else "",
    )


def _niu(mode: str, tokens: int, amp: bool = False) -> Case:
    kind = {"forward": "forward", "both": "forward_and_backward"}[mode]
    suffix = "_mixed_precision" if amp else ""
    folder = "cs336_systems/profile_memory"
    return Case(
        name=f"{kind.replace('_', ' ')}, {tokens} tokens{', bf16 autocast' if amp else ''}",
        source=NIU,
        snapshot=f"{folder}/{kind}_memory_snapshot_{tokens}{suffix}.pickle",
        script=f"{folder}/{'profile_mixprecision_memory' if amp else 'profile_memory'}.py",
        options=("--mode", mode, "--context_length", str(tokens), *(["--use_mixed_precision"] if amp else [])),
        writes=f"{kind}_memory_snapshot_{tokens}{suffix}.pickle",
        torch="2.6.0",
        other_torch="newer ones draw trunc_normal_ into six temporaries per weight, and the full slices of x[:, -1, :]"
        " have no gradients of their own",
    )


CASES: tuple[Case, ...] = (
    *(_wedsonlin(tokens, "forward-only", amp=tokens == 512) for tokens in (128, 256, 512, 1024)),
    *(_wedsonlin(tokens, "full-training-step", amp=tokens >= 512) for tokens in (128, 256, 512, 1024)),
    *(_niu(mode, tokens) for mode in ("forward", "both") for tokens in (100, 150, 200)),
    *(_niu(mode, 200, amp=True) for mode in ("forward", "both")),
    Case(
        name="forward and backward, batch of 32",
        source=MAGMA,
        snapshot="memory_snapshot.pickle",
        script="cs336_systems/benchmarking_script.py",
        options=(),
        writes="memory_snapshot.pickle",
        torch="2.11.0",
        paths=("cs336-basics",),
    ),
    Case(
        name="forward without gradients, 5 steps",
        source=CHARAN,
        snapshot="cs336_systems/memory_snapshot.pickle",
        script="cs336_systems/benchmark.py",
        options=("--mode", "forward"),
        writes="memory_snapshot.pickle",
        torch="2.11.0",
        paths=("cs336-basics",),
    ),
    Case(
        name="attention, 4,096 tokens, forward and backward",
        source=SILMONT,
        snapshot="mem_snapshot.pickle",
        script="cs336_systems/trace_peak_memory.py",
        options=(),
        writes="mem_snapshot.pickle",
        torch="2.6.0",
    ),
    Case(
        name="training with torch.compile",
        source=BCRAFTON,
        snapshot="memory_snapshot.pickle",
        script="benchmarking_script.py",
        options=(),
        writes="memory_snapshot.pickle",
        torch="2.10.0",
        other_torch="its compiler, and einx 0.4 in place of 0.3, divide the model otherwise",
        cause="reserved before the recording, while the compiler measured kernels: which ones it takes depends on their"
        " times, and the buffer with which it clears the L2 cache is as large as that (48 MiB on that card)",
    ),
    Case(
        name="3.4 billion parameters, forward, bf16 autocast",
        source=KKAITLYN,
        snapshot="memory_files/memory_ctx128_forward_mixed.pickle",
        script="cs336_systems/benchmark.py",
        options=(),
        writes="memory_files/memory_ctx128_forward_mixed.pickle",
        torch="2.6.0",
        gpu="h100-80gb",
        also=(KKAITLYN_MODEL,),
        edits=_ONE_RUN,
        host_gib=20,
    ),
)
