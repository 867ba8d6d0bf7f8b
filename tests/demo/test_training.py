"""The demo's parts."""

from __future__ import annotations

import torch

from tbmem.demo import Fault
from tbmem.demo.training import VOCABULARY, DemoTraining, LanguageModel, ModelSize, draw_batch, load_text


def test_the_text_is_python() -> None:
    text = bytes(load_text().tolist())

    assert len(text) > 500_000
    assert b"import " in text


def test_targets_are_the_next_bytes() -> None:
    text = torch.arange(200, dtype=torch.uint8)
    generator = torch.Generator().manual_seed(0)

    inputs, targets = draw_batch(text, 4, 16, generator, torch.device("cpu"))

    assert inputs.shape == targets.shape == (4, 16)
    assert torch.equal(inputs + 1, targets)


def test_the_model_cannot_see_the_future() -> None:
    torch.manual_seed(0)
    model = LanguageModel(ModelSize(layers=2, width=16, heads=2, context=8)).eval()
    tokens = torch.randint(VOCABULARY, (1, 8))
    changed = tokens.clone()
    changed[0, -1] += 1

    before, after = model(tokens)[0, :-1], model(changed % VOCABULARY)[0, :-1]

    torch.testing.assert_close(before, after)


def test_it_learns() -> None:
    training = DemoTraining(torch.device("cpu"), 12, None)

    losses = [training.step(number) for number in range(1, 13)]

    assert losses[-1] < losses[0] - 1
    assert training.history == []


def test_the_leak_keeps_every_steps_scores() -> None:
    training = DemoTraining(torch.device("cpu"), 3, Fault.LEAK)

    for number in range(1, 4):
        training.step(number)

    assert len(training.history) == 3
