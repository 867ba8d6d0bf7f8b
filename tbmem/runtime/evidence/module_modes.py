"""Tells evaluations from training steps by the mode of the module that runs."""

from __future__ import annotations

import weakref

import torch

_MOST = 16
"""Modules that are remembered; a program calls few from outside of others."""


class KnownModule:
    """A module that was called, without keeping it alive, and whether it was ever seen in training mode."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.reference = weakref.ref(module)
        self.trains = False

    def update(self) -> None:
        """Look at the mode that it has now."""
        module = self.reference()
        self.trains = self.trains or (module is not None and module.training)


class ModuleModes:
    """Remembers which modules were seen to train: in eval mode, a call of one of these is an evaluation.

    A teacher, a frozen encoder, or a model that is trained in eval mode never trains.
    """

    def __init__(self) -> None:
        self._known: list[KnownModule] = []

    def note(self, module: torch.nn.Module) -> KnownModule | None:
        """Note a module that runs; returns it if it is in eval mode."""
        known = next((each for each in self._known if each.reference() is module), None)
        if known is None:
            known = KnownModule(module)
            self._known = [*self._known, known][-_MOST:]
        known.update()
        return None if module.training else known

    def update(self) -> None:
        """Look at the modes that the modules have now."""
        for known in self._known:
            known.update()
