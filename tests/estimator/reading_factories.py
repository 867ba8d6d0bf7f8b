"""Models that read values of tensors, of the batch's and of their own; each is built in a child process."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

Body = Callable[..., torch.Tensor]


class Reads(nn.Module):
    """Hidden states of tokens, and what is done with them."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.tokens, self.linear, self.body = nn.Embedding(100, 16), nn.Linear(16, 16), body

    def forward(self, tokens: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return self.body(self.linear(self.tokens(tokens)), tokens, *rest)


def made(body: Body, *rest: torch.Tensor) -> Any:
    """Four samples of 32 tokens, of which 62 in all are above 50."""
    tokens = torch.full((4, 32), 60)
    tokens[:, :16] = 7
    tokens[0, 16:18] = 8
    return Reads(body), (tokens, *rest), lambda output, batch: output.float().mean()


def lengths() -> torch.Tensor:
    return torch.tensor([5, 9, 30, 12])


def found(hidden: torch.Tensor) -> torch.Tensor:
    """How many the model itself finds: nobody knows."""
    return (hidden.sum(-1) > 0).sum()


def kept(hidden: torch.Tensor) -> torch.Tensor:
    """Its own memory has a size that can be looked for: 64 bytes a token."""
    return hidden.clone()


# what the batch knows


def trimmed_by_item() -> Any:
    return made(lambda hidden, tokens, long: kept(hidden[:, : long.max().item()]), lengths())


def generated() -> Any:
    """As transformers' generate(): sequences end by themselves, or all of them after 20 tokens."""

    def body(hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        unfinished, length = torch.ones(4, dtype=torch.int64, device=tokens.device), 0
        finished = False
        while not finished:
            length += 1
            ended = torch.full((4,), length >= 20, device=tokens.device) | (hidden.sum((1, 2)) > 0)
            unfinished = unfinished & ~ended
            finished = bool(unfinished.max() == 0)
        return kept(hidden[:, :length])

    return made(body)


def trimmed_by_int() -> Any:
    return made(lambda hidden, tokens, long: kept(hidden[:, : int(long.max())]), lengths())


def trimmed_by_tensor() -> Any:
    return made(lambda hidden, tokens, long: kept(hidden[:, : long.max()]), lengths())


def trimmed_by_numpy() -> Any:
    return made(lambda hidden, tokens, long: kept(hidden[:, : int(np.max(long.cpu().numpy()))]), lengths())


def trimmed_as_numpy_says() -> Any:
    return made(
        lambda hidden, tokens, long: kept(hidden[:, : long.max().item()]), torch.from_numpy(np.array([1, 2, 3, 30]))
    )


def trimmed_by_fractions() -> Any:
    return made(lambda hidden, tokens, long: kept(hidden[:, : int(torch.ceil(long.float() / 1.03).max())]), lengths())


def masked() -> Any:
    return made(lambda hidden, tokens: kept(hidden[tokens > 50]))


def selected() -> Any:
    return made(lambda hidden, tokens: hidden.masked_select((tokens > 50).unsqueeze(-1)).view(-1, 16).clone())


def nonzero() -> Any:
    return made(lambda hidden, tokens: kept(hidden[(tokens > 50).nonzero(as_tuple=True)]))


def mask_is_filled() -> Any:
    def body(hidden: torch.Tensor, tokens: torch.Tensor, long: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(4, 32, dtype=torch.bool, device=hidden.device)
        for row, length in enumerate(long):
            mask[row, :length] = True
        return kept(hidden[mask])

    return made(body, lengths())


def repeated() -> Any:
    return made(
        lambda hidden, tokens, times: hidden[:, 0].repeat_interleave(times, 0).clone(), torch.tensor([1, 2, 3, 50])
    )


def split() -> Any:
    return made(
        lambda hidden, tokens, parts: kept(hidden.flatten(0, 1).split(parts.tolist())[1]), torch.tensor([28, 56, 44])
    )


def varlen() -> Any:
    """Attention over packed samples, as its offsets and its longest sample say."""

    def body(hidden: torch.Tensor, tokens: torch.Tensor, ends: torch.Tensor, longest: torch.Tensor) -> torch.Tensor:
        flat = hidden.flatten(0, 1)[: int(ends[-1])]
        padded = hidden.new_zeros(len(ends) - 1, int(longest), 16)
        for row in range(len(ends) - 1):
            padded[row, : ends[row + 1] - ends[row]] = flat[ends[row] : ends[row + 1]]
        return kept(padded)

    return made(body, F.pad(lengths().cumsum(0), (1, 0)).int(), lengths().max())


# what nobody knows


def sizes() -> Any:
    return made(lambda hidden, tokens: hidden.sum() + torch.zeros(found(hidden).item()).sum())  # type: ignore[call-overload]


def half_of_it() -> Any:
    return made(lambda hidden, tokens: hidden.sum() + torch.zeros(math.ceil(found(hidden).item() / 2)).sum())


def slices() -> Any:
    return made(lambda hidden, tokens: hidden[:, : found(hidden).item()])


def slices_by_int() -> Any:
    return made(lambda hidden, tokens: hidden[:, : int(found(hidden))])


def slices_by_tensor() -> Any:
    return made(lambda hidden, tokens: hidden[:, : found(hidden)])


def lists() -> Any:
    return made(lambda hidden, tokens: hidden[0, : (hidden.sum(-1) > 0).sum(1).tolist()[2]])


def loops() -> Any:
    def body(hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        for _ in range(found(hidden).item()):  # type: ignore[arg-type]
            hidden = hidden + 1
        return hidden

    return made(body)


def top() -> Any:
    return made(lambda hidden, tokens: hidden.sum(-1).topk(max(1, int(found(hidden))), 1)[0])


def top_as_given() -> Any:
    return made(lambda hidden, tokens, count: kept(hidden.topk(int(count), 1)[0]), torch.tensor(30))


def classes() -> Any:
    return made(lambda hidden, tokens: F.one_hot(hidden.argmax(-1)) * hidden.sum())


def random_crop() -> Any:
    """Another at each step."""
    return made(lambda hidden, tokens: hidden[:, : torch.randint(1, 30, (1,)).item()])


def overwritten() -> Any:
    def body(hidden: torch.Tensor, tokens: torch.Tensor, long: torch.Tensor) -> torch.Tensor:
        long[0] = found(hidden)
        return hidden[:, : long.max().item()]

    return made(body, lengths())


def packed() -> Any:
    def body(hidden: torch.Tensor, tokens: torch.Tensor, long: torch.Tensor) -> torch.Tensor:
        return nn.utils.rnn.pack_padded_sequence(hidden, long, batch_first=True, enforce_sorted=False).data

    return made(body, lengths())


def picks() -> Any:
    """Whichever it is, its size is that of any other; which is not looked into."""
    return made(lambda hidden, tokens: hidden[:, hidden[0, 0].argmax()] + hidden[:, hidden[0, 0].argmax().item()])  # type: ignore[index]


# what does not matter


def accuracy() -> Any:
    counts = {"right": 0, "all": 0}

    def body(hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        right = hidden.argmax(-1) == tokens
        counts["right"] += right.sum().item() + float(right.sum())
        counts["all"] += right.numel()
        share = round(counts["right"] / counts["all"], 3)
        said = f"{share:.3f} {counts['right']:d} {json.dumps(counts)}"
        assert said
        return hidden * torch.tensor(share) + torch.tensor([counts["right"]], device=hidden.device)

    return made(body)


def branches() -> Any:
    def body(hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        count = found(hidden).item()
        if found(hidden) and found(hidden) > 3:
            return hidden
        return hidden / count if count > 3 else hidden * max(1, count)

    return made(body)
