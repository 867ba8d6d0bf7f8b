"""Models that the tests' jobs name; each is built in a child process."""

from __future__ import annotations

import copy
import tempfile
from typing import Any

import torch
from torch import nn


def linear(batch: int = 4) -> Any:
    """One layer whose bytes can be worked out by hand: 256 KiB of weights."""
    return nn.Linear(256, 256, bias=False), torch.zeros(batch, 256), lambda output, batch: output.sum()


def layers(batch: int = 8) -> Any:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6)])
    return model, torch.zeros(batch, 256), lambda output, batch: output.square().mean()


def copied() -> Any:
    """Layers that are deep copies of one."""
    layer = nn.TransformerEncoderLayer(64, 2, 128, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return model, torch.zeros(2, 16, 64), lambda output, batch: output.sum()


class Chooses(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values[values > 0].sum()


def data_dependent() -> Any:
    return nn.Sequential(nn.Linear(4, 4), Chooses()), torch.zeros(2, 4)


def raises() -> Any:
    raise RuntimeError("the data set is not here")


def only_model() -> Any:
    return nn.Linear(2, 2)


def frozen() -> Any:
    return nn.Linear(2, 2).requires_grad_(False), torch.zeros(3, 2), lambda output, batch: output.sum()


def no_loss() -> Any:
    return nn.Linear(2, 2), torch.zeros(3, 2)


def loss_of_one() -> Any:
    return nn.Linear(2, 2), torch.zeros(3, 2), lambda output: output.sum()


def loss_is_none() -> Any:
    return nn.Linear(2, 2), torch.zeros(3, 2), 3


def needs_width(width: int) -> Any:
    return nn.Linear(width, 2), torch.zeros(3, width), lambda output, batch: output.sum()


def needs_length(seq: int) -> Any:
    return nn.Linear(seq, 2), torch.zeros(3, seq), lambda output, batch: output.sum()


def reads_numpy() -> Any:
    return nn.Linear(2, 2), torch.zeros(3, 2), lambda output, batch: output.sum() * output.detach().numpy().max()


NOT_A_FUNCTION = 3


def own_step() -> Any:
    """Two parts, accumulated, clipped and updated by the user's own code."""
    model, batch, loss = layers(batch=64)

    def step(model: nn.Module, batch: Any, optimizer: Any) -> None:
        for _ in range(2):
            loss(model(batch), batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return {"model": model, "batch": batch, "step": step}


def lbfgs() -> Any:
    """256 KiB of weights, and an optimizer that asks for the loss again and again."""
    model, batch, loss = linear()

    def step(model: nn.Module, batch: Any, optimizer: torch.optim.LBFGS) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            value = loss(model(batch), batch)
            value.backward()
            return value  # type: ignore[no-any-return]

        optimizer.step(closure)  # type: ignore[arg-type]

    return {"model": model, "batch": batch, "step": step, "optimizer": lambda found: torch.optim.LBFGS(found)}


def pictures(batch: int = 2) -> Any:
    """A convolution, for which cuDNN and oneDNN take memory of their own."""
    model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False))
    return model, torch.zeros(batch, 64, 32, 32), lambda output, batch: output.sum()


def on_the_gpu() -> Any:
    """Puts model and batch on the GPU itself."""
    model, batch, loss = layers()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device), batch.to(device), loss


def made_on_the_gpu() -> Any:
    with torch.device("cuda"):
        return layers()


def averaged() -> Any:
    """Keeps an average of the weights in the loss."""
    model, batch, loss = layers()
    model.cuda()
    average = copy.deepcopy(model).requires_grad_(False)

    def of_both(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        assert average is not model
        return loss(output, batch)  # type: ignore[no-any-return]

    return model, batch, of_both


def infers() -> Any:
    """A step of its own that trains nothing."""
    model, batch, _ = layers()

    def step(model: nn.Module, batch: Any, optimizer: Any) -> None:
        assert optimizer is None
        model(torch.cat([batch, batch]))

    return {"model": model, "batch": batch, "step": step}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(16, 32, batch_first=True)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(values)[0]
        return result


def gru() -> Any:
    return Recurrent(), torch.zeros(4, 8, 16), lambda output, batch: output.sum()


def ddp() -> Any:
    return nn.parallel.DistributedDataParallel(nn.Linear(2, 2)), torch.zeros(3, 2)


def data_parallel() -> Any:
    return nn.DataParallel(nn.Linear(2, 2)), torch.zeros(3, 2)


def two_gpus() -> Any:
    model, batch, loss = linear()
    return nn.Sequential(model.to("cuda:0"), nn.Linear(256, 2).to("cuda:1")), batch, loss


def fully_sharded() -> Any:
    from torch.distributed.fsdp import fully_shard

    model, batch, loss = linear()
    return fully_shard(model), batch, loss


def context_parallel() -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    model, batch, loss = linear()
    init_device_mesh("cuda", (2,))
    return model, batch, loss


def trains_itself() -> Any:
    """A step that is transformers' Trainer."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=10))

    def step(model: nn.Module, batch: Any, optimizer: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tokens = {"input_ids": [1, 2], "labels": [1, 2]}
            arguments = TrainingArguments(output_dir=folder, max_steps=1, report_to=[])
            Trainer(model=model, args=arguments, train_dataset=[tokens] * 8).train()

    return {"model": model, "batch": torch.zeros(2, 2, dtype=torch.int64), "step": step}


def fsdp1() -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(nn.Linear(2, 2)), torch.zeros(3, 2)


class Compiled(nn.Module):
    """Hands addresses to a kernel, as extensions do."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values.data_ptr()
        return values


def gpu_kernel() -> Any:
    return nn.Sequential(nn.Linear(4, 4), Compiled()), torch.zeros(2, 4), lambda output, batch: output.sum()


@torch.library.custom_op("tbmem_tests::no_fake", mutates_args=())
def no_fake(values: torch.Tensor) -> torch.Tensor:
    return values.clone()


class Custom(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = no_fake(values)
        return result


def custom_operator() -> Any:
    return nn.Sequential(nn.Linear(4, 4), Custom()), torch.zeros(2, 4), lambda output, batch: output.sum()


def leaves() -> Any:
    raise SystemExit(3)


def _attended(flexible: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Linear(64, 3 * 64)

        def forward(self, values: torch.Tensor) -> Any:
            parts = [part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.inside(values).chunk(3, -1)]
            if flexible:
                return flex_attention(*parts, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score, -1e9))
            return nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2][..., :8])

    return Attends(), torch.zeros(2, 128, 64), lambda output, batch: output.sum()


def flexible() -> Any:
    return _attended(flexible=True)


def narrow_values() -> Any:
    """Values are half as wide as queries and keys."""
    return _attended(flexible=False)


class Checks(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        assert values.isfinite().all()
        assert torch.allclose(values, values)
        if values.isnan().any():
            raise ValueError("not a number")
        return values


def checks() -> Any:
    return nn.Sequential(nn.Linear(4, 4), Checks()), torch.zeros(2, 4), lambda output, batch: output.sum()


class Streams(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        torch.cuda.nvtx.range_push("here")
        values.record_stream(torch.cuda.current_stream())
        torch.cuda.nvtx.range_pop()
        return values


def streams() -> Any:
    return nn.Sequential(nn.Linear(4, 4), Streams()), torch.zeros(2, 4), lambda output, batch: output.sum()


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 16, 32))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        ends = torch.tensor([2, 4, 6, 8], dtype=torch.int32, device=values.device)
        return torch.nn.functional.grouped_mm(values, self.weight, offs=ends)


def grouped() -> Any:
    return Grouped(), torch.zeros(8, 16), lambda output, batch: output.sum()


class NamesItsLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(4, 4)

    def forward(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.inside(values).sum()}


def names_its_loss() -> Any:
    return NamesItsLoss(), torch.zeros(2, 4)


def sparse() -> Any:
    return nn.Embedding(10, 4, sparse=True), torch.zeros(3, dtype=torch.int64), lambda output, batch: output.sum()


def lazy() -> Any:
    return nn.LazyLinear(2), torch.zeros(3, 4), lambda output, batch: output.sum()


@torch.compile
def compiled(values: torch.Tensor) -> torch.Tensor:
    return values * 2


class Calls(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.inside, self.function = nn.Linear(4, 4), function

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.function(self.inside(values))
        return result


def calls_compiled() -> Any:
    return Calls(compiled), torch.zeros(2, 4), lambda output, batch: output.sum()


def quantized() -> Any:
    def function(values: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(values, 0.1, 0, -128, 127)

    return Calls(function), torch.zeros(2, 4), lambda output, batch: output.sum()


def half() -> tuple[nn.Module, torch.Tensor, Any]:
    """A model that is made in bfloat16."""
    model = nn.Linear(1024, 1024, bias=False).to(torch.bfloat16)
    return model, torch.zeros(2, 1024, dtype=torch.bfloat16), lambda output, batch: output.float().sum()


class _Fp8Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(256, 512, dtype=torch.float8_e4m3fn))
        self.head = nn.Linear(256, 4)

    def forward(self, values: torch.Tensor) -> Any:
        return self.head(values @ self.weight.to(values.dtype).t())  # type: ignore[operator]


def fp8_weight() -> Any:
    """A weight of 128 KiB in float8."""
    return _Fp8Weight(), torch.zeros(4, 512), lambda output, batch: output.sum()


class _Fp8Product(nn.Module):
    def forward(self, values: torch.Tensor) -> Any:
        one = torch.ones((), device=values.device)
        small = values.to(torch.float8_e4m3fn)
        return torch._scaled_mm(small, small.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def fp8_product() -> Any:
    """A scaled product, forward only."""
    return _Fp8Product(), torch.zeros(256, 512)
