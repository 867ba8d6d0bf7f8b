"""BERT-large under transformers' Trainer, as in Hugging Face's guide to training on one GPU, with random weights."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

TOKENS, SEQUENCES = 512, 64


def parsed() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--batch", type=int, default=4)
    arguments.add_argument("--accumulate", type=int, default=1)
    arguments.add_argument("--checkpoint", action="store_true")
    arguments.add_argument("--fp16", action="store_true")
    arguments.add_argument("--adafactor", action="store_true")
    arguments.add_argument(
        "--as-in-2022", action="store_true", help="as transformers 4.16 and torch 1.10 did by default"
    )
    return arguments.parse_args()


class Softmax(torch.autograd.Function):
    """Softmax that keeps its input for the backward pass, as it did before torch 1.11."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int) -> torch.Tensor:
        result = torch.softmax(x, dim)
        ctx.save_for_backward(x, result)
        ctx.dim = dim
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        x, result = ctx.saved_tensors
        return torch._softmax_backward_data(gradients[0], result, ctx.dim, x.dtype), None


def as_before_torch_2() -> None:
    """Keep what torch 1.10 kept: the input of softmax, and gradients in the forward pass, zeroed rather than freed."""
    free = torch.nn.Module.zero_grad
    torch.nn.Module.zero_grad = lambda self, set_to_none=False: free(self, set_to_none)  # type: ignore[method-assign]
    torch.nn.functional.softmax = lambda x, dim, dtype=None: Softmax.apply(x.float(), dim)


def main() -> None:
    given = parsed()
    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    if given.as_in_2022:
        config._attn_implementation = "eager"
        as_before_torch_2()
    model = BertForSequenceClassification(config).to("cuda")
    tokens = torch.randint(100, 30000, (SEQUENCES, TOKENS))
    data = [{"input_ids": row, "labels": torch.tensor(0)} for row in tokens]
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            output_dir=folder,
            report_to="none",
            per_device_train_batch_size=given.batch,
            gradient_accumulation_steps=given.accumulate,
            gradient_checkpointing=given.checkpoint,
            gradient_checkpointing_kwargs={"use_reentrant": given.as_in_2022},
            fp16=given.fp16,
            optim="adafactor" if given.adafactor else "adamw_torch",
        )
        trainer = Trainer(model=model, args=options, train_dataset=data)
        if given.as_in_2022 and not given.adafactor:
            trainer.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, foreach=False)
        trainer.train()


if __name__ == "__main__":
    main()
