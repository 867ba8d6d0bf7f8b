"""Which calls are evaluations: those in eval mode of a module that trains at other times."""

from __future__ import annotations

import gc

import torch

from tbmem.runtime.evidence.module_modes import ModuleModes


def test_a_module_that_trains_later_was_evaluated() -> None:
    # given a module that is first seen in eval mode
    modes, module = ModuleModes(), torch.nn.Linear(1, 1).eval()
    known = modes.note(module)
    assert known is not None
    assert not known.trains
    # when
    module.train()
    modes.update()
    module.eval()
    # then
    assert known.trains


def test_a_module_that_has_trained_is_evaluated_at_the_end() -> None:
    # given
    modes, module = ModuleModes(), torch.nn.Linear(1, 1)
    assert modes.note(module) is None
    # when / then
    known = modes.note(module.eval())
    assert known is not None
    assert known.trains


def test_a_module_that_never_trains_is_not_evaluated() -> None:
    # given a teacher beside a student
    modes, teacher, student = ModuleModes(), torch.nn.Linear(1, 1).eval(), torch.nn.Linear(1, 1)
    modes.note(student)
    known = modes.note(teacher)
    modes.update()
    # when / then
    assert known is not None
    assert not known.trains


def test_no_module_is_kept_alive_and_few_are_remembered() -> None:
    # given
    modes = ModuleModes()
    modules = [torch.nn.Linear(1, 1) for _ in range(40)]
    for module in modules:
        modes.note(module)
    assert len(modes._known) == 16
    # when
    del module, modules
    gc.collect()
    modes.update()
    # then
    assert all(known.reference() is None for known in modes._known)
