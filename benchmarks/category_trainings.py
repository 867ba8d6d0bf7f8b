"""Trainings of which categories.py makes snapshots: ``python benchmarks/category_trainings.py NAME FILE``.

A snapshot begins after warm-up steps, so that weights and optimizer state are older than it. FILE.json beside it says
what each address of these was: a number of ``Category``, from the model and the optimizer themselves.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tbmem.model.category import Category

Step = Callable[[], object]
Parts = tuple[list[nn.Module], list[torch.optim.Optimizer], Step]
DEVICE = "cuda"
WARM_UP, RECORDED = 3, 2


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, gated: bool = False) -> None:
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gate = nn.Linear(width, 4 * width, bias=False) if gated else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of hidden states."""
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        attended = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        hidden = self.up(self.second_norm(x))
        hidden = F.gelu(hidden) if self.gate is None else F.silu(self.gate(self.second_norm(x))) * hidden
        return x + self.down(hidden)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """A language model."""

    def __init__(self, width: int = 512, layers: int = 6, words: int = 8000, gated: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, gated) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.head(self.norm(self.blocks(self.embedding(tokens))))  # type: ignore[no-any-return]


class LoRA(nn.Module):
    """A frozen layer with an adapter."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.a, self.b = (
            nn.Linear(frozen.in_features, rank, bias=False),
            nn.Linear(rank, frozen.out_features, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of hidden states."""
        return self.frozen(x) + self.b(self.a(x))  # type: ignore[no-any-return]


def convnet(width: int, blocks: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for number in range(blocks):
        into = width * 2 ** (number // 2)
        out = width * 2 ** ((number + 1) // 2)
        layers += [nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(out, 1000))


def tokens(batch: int = 4, length: int = 128) -> torch.Tensor:
    return torch.randint(0, 100, (batch, length), device=DEVICE)


def trained(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Step = tokens,
    amp: bool = False,
    keep: bool = False,
    passes: int = 1,
) -> Parts:
    """The usual step; ``keep``: gradients are set to zero rather than freed."""

    def step() -> None:
        optimizer.zero_grad(set_to_none=not keep)
        for _ in range(passes):
            with torch.autocast(DEVICE, torch.bfloat16, enabled=amp):
                loss = model(batch()).float().square().mean()
            loss.backward()
        optimizer.step()

    return [model], [optimizer], step


def images(batch: int = 8) -> torch.Tensor:
    return torch.randn(batch, 3, 32, 32, device=DEVICE)


def decoder_adamw() -> Parts:
    model = Decoder().to(DEVICE)
    return trained(model, torch.optim.AdamW(model.parameters()))


def convnet_momentum() -> Parts:
    model = convnet(64, 8).to(DEVICE)
    return trained(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), images)


def lora() -> Parts:
    model = Decoder(layers=8)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for block in model.blocks:
        block.qkv, block.out = LoRA(block.qkv, 64), LoRA(block.out, 64)  # type: ignore[arg-type]
    model.to(DEVICE)
    return trained(model, torch.optim.AdamW(one for one in model.parameters() if one.requires_grad))


def inference() -> Parts:
    model = Decoder(gated=True, layers=5).to(DEVICE, torch.bfloat16)
    return [model], [], torch.no_grad()(lambda: model(tokens()))


def adam_gradients_kept() -> Parts:
    model = Decoder(layers=4, gated=True).to(DEVICE)
    return trained(model, torch.optim.Adam(model.parameters(), foreach=False), keep=True)


def sgd_plain() -> Parts:
    model = convnet(32, 8).to(DEVICE)
    return trained(model, torch.optim.SGD(model.parameters(), 0.1), images)


def freed_at_the_end() -> Parts:
    model = Decoder(layers=3).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        model(tokens()).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return [model], [optimizer], step


def inference_with_cache() -> Parts:
    model = Decoder(layers=8).to(DEVICE, torch.bfloat16)
    cache = [torch.zeros(2, 8, 1024, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(16)]

    @torch.no_grad()
    def step() -> None:
        model(tokens(1, 1))
        for one in cache:
            one[:, :, :1] += 1

    return [model], [], step


def adam_amp() -> Parts:
    model = Decoder(layers=5, width=768).to(DEVICE)
    return trained(model, torch.optim.Adam(model.parameters()), amp=True)


def gan() -> Parts:
    generator = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 3072))
    judge = nn.Sequential(
        nn.Linear(3072, 1024), nn.LeakyReLU(), nn.Linear(1024, 512), nn.LeakyReLU(), nn.Linear(512, 1)
    )
    generator.to(DEVICE), judge.to(DEVICE)
    first, second = (torch.optim.Adam(one.parameters(), betas=(0.5, 0.999)) for one in (generator, judge))

    def step() -> None:
        made = generator(torch.randn(64, 256, device=DEVICE))
        second.zero_grad()
        (judge(made.detach()).mean() - judge(torch.randn(64, 3072, device=DEVICE)).mean()).backward()
        second.step()
        first.zero_grad()
        judge(made).mean().backward()
        first.step()

    return [generator, judge], [first, second], step


def momentum_gradients_kept() -> Parts:
    model = convnet(48, 10).to(DEVICE)
    return trained(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), images, keep=True)


def accumulation() -> Parts:
    model = Decoder(layers=4, width=640).to(DEVICE)
    return trained(model, torch.optim.AdamW(model.parameters()), passes=3)


def teacher_and_student() -> Parts:
    teacher, student = Decoder(layers=6).to(DEVICE), Decoder(layers=3).to(DEVICE)
    optimizer = torch.optim.AdamW(student.parameters())

    def step() -> None:
        with torch.no_grad():
            target = teacher(batch := tokens())
        F.mse_loss(student(batch), target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return [teacher, student], [optimizer], step


def averaged_weights() -> Parts:
    model = Decoder(layers=4).to(DEVICE)
    mean = copy.deepcopy(model).requires_grad_(False)
    parts = trained(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))

    def step() -> None:
        parts[2]()
        with torch.no_grad():
            for one, other in zip(mean.parameters(), model.parameters(), strict=True):
                one.lerp_(other, 0.01)

    return [model, mean], parts[1], step


def bf16_adam() -> Parts:
    model = Decoder(layers=7, gated=True).to(DEVICE, torch.bfloat16)
    return trained(model, torch.optim.AdamW(model.parameters()))


def inference_convnet() -> Parts:
    model = convnet(96, 10).to(DEVICE).eval()
    return [model], [], torch.no_grad()(lambda: model(images()))


class Experts(nn.Module):
    """A layer that mixes the outputs of experts."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of hidden states."""
        shares = self.router(x).softmax(-1).unbind(-1)
        parts = zip(shares, self.up, self.down, strict=True)
        return x + sum(share[..., None] * down(F.silu(up(x))) for share, up, down in parts)  # type: ignore[no-any-return]


def mixture_of_experts() -> Parts:
    model = nn.Sequential(nn.Embedding(4000, 448), *(Experts(448, 8) for _ in range(5)), nn.Linear(448, 4000)).to(
        DEVICE
    )
    return trained(model, torch.optim.AdamW(model.parameters()), amp=True)


def lstm_rmsprop() -> Parts:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.lstm = nn.Embedding(6000, 384), nn.LSTM(384, 768, 3, batch_first=True)
            self.head = nn.Linear(768, 6000)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Logits."""
            return self.head(self.lstm(self.embedding(x))[0])  # type: ignore[no-any-return]

    model = Model().to(DEVICE)
    return trained(model, torch.optim.RMSprop(model.parameters(), momentum=0.9))


def head_on_frozen_encoder() -> Parts:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(576, 8, 1536, batch_first=True), 6).requires_grad_(False)
    model = nn.Sequential(
        nn.Embedding(9000, 576).requires_grad_(False), encoder, nn.Linear(576, 2048), nn.Linear(2048, 9000)
    )
    model.to(DEVICE)
    return trained(model, torch.optim.Adam(model[2:].parameters()))


def encoder_adagrad_kept() -> Parts:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(320, 8, 1280, batch_first=True), 9)
    model = nn.Sequential(nn.Embedding(5000, 320), encoder, nn.Linear(320, 5000)).to(DEVICE)
    return trained(model, torch.optim.Adagrad(model.parameters()), keep=True)


def two_decoders_alternate() -> Parts:
    first, second = Decoder(layers=3, width=640).to(DEVICE), Decoder(layers=5, width=384).to(DEVICE)
    parts = [trained(one, torch.optim.AdamW(one.parameters())) for one in (first, second)]
    return [first, second], [one[1][0] for one in parts], lambda: [one[2]() for one in parts]


def inference_half_after_training() -> Parts:
    model = Decoder(layers=4, width=896).to(DEVICE)
    (_, (optimizer,), step) = trained(model, torch.optim.AdamW(model.parameters()))
    step()
    optimizer.zero_grad()
    return [model], [optimizer], torch.no_grad()(lambda: model(tokens()))


def generation_with_caches_of_layers() -> Parts:
    model = Decoder(layers=6, width=512, gated=True).to(DEVICE, torch.float16)
    caches: list[torch.Tensor] = []

    @torch.no_grad()
    def step() -> None:
        model(tokens(2, 32))
        if not caches:
            caches.extend(torch.zeros(8, 8, 512, 64, device=DEVICE, dtype=torch.float16) for _ in range(12))

    return [model], [], step


def data_on_the_gpu() -> Parts:
    data = [torch.randn(512, 3, 32, 32, device=DEVICE) for _ in range(10)]
    model = convnet(40, 9).to(DEVICE)
    return trained(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True), lambda: data[0][:8])


TRAININGS = {name: one for name, one in globals().items() if getattr(one, "__annotations__", {}) == {"return": "Parts"}}


def older_storages(models: list[nn.Module], optimizers: list[torch.optim.Optimizer]) -> Iterator[tuple[int, Category]]:
    """Address and category of each storage of models and optimizers."""
    for model in models:
        yield from ((one.data_ptr(), Category.BUFFER) for one in model.buffers())
        for parameter in model.parameters():
            if parameter.grad is not None:
                yield parameter.grad.data_ptr(), Category.GRADIENT
            yield parameter.data_ptr(), Category.PARAMETER
    for state in chain.from_iterable(one.state.values() for one in optimizers):
        values: list[Any] = list(state.values())
        yield from (
            (one.data_ptr(), Category.OPTIMIZER_STATE) for one in values if torch.is_tensor(one) and one.is_cuda
        )


def main() -> int:
    name, path = sys.argv[1:]
    models, optimizers, step = TRAININGS[name]()
    for _ in range(WARM_UP):
        step()
    older = dict(older_storages(models, optimizers))
    torch.cuda.memory._record_memory_history(stacks="python")
    for _ in range(RECORDED):
        step()
    torch.cuda.memory._dump_snapshot(path)  # type: ignore[no-untyped-call]
    with open(f"{path}.json", "w") as file:
        json.dump({address: int(category) for address, category in older.items()}, file)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
