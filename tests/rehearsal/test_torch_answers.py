"""What torch asks of the device: whether a distribution's arguments are valid."""

from __future__ import annotations

import pytest
import torch

from tbmem.rehearsal.torch_answers import valid_distributions


class OnDevice:
    """A tensor of a device that computes nothing: all of its values are zero."""

    is_cuda = True


def test_what_the_device_has_checked_is_valid_and_the_check_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    asked: list[object] = []
    monkeypatch.setattr(torch, "_is_all_true", lambda checked: asked.append(checked) or torch.zeros(()))
    valid_distributions()
    checked = OnDevice()
    # then
    assert torch._is_all_true(checked)  # type: ignore[arg-type]
    assert asked == [checked]


def test_what_the_host_has_checked_is_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_is_all_true", torch._is_all_true)
    valid_distributions()
    with pytest.raises(ValueError, match="constraint"):
        torch.distributions.Categorical(probs=torch.tensor([-1.0, 2.0]), validate_args=True)
    assert torch.distributions.Categorical(probs=torch.tensor([0.5, 0.5])).entropy() > 0
