"""Llama-3-8B under FSDP2 from the meta device, checkpointed, in bf16: a plain script that a launcher starts."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, GROUPS, HIDDEN, LAYERS, WORDS = 4096, 32, 8, 14336, 32, 128256
BATCH, LENGTH = 1, 4096


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        narrow = WIDTH * GROUPS // HEADS
        self.query, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(WIDTH, narrow, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (self.query(x), self.key(x), self.value(x))
        query, key, value = (part.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in parts)
        key, value = (part.repeat_interleave(HEADS // GROUPS, dim=1) for part in (key, value))
        found = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm, self.second_norm = Attention(), nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        h = self.second_norm(x)
        return x + self.down(silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(WORDS, WIDTH), nn.RMSNorm(WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(self.norm(x))


def main() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with torch.device("meta"):
        model = Llama()
    for part in (*model.layers, model):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(100):
        tokens = torch.randint(0, WORDS, (BATCH, LENGTH), device="cuda")
        loss = cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
