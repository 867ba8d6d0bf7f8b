"""Records the names and storage addresses of a model's and its optimizers' tensors."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tbmem.interruption import raise_interruption
from tbmem.model.address_book import AddressBook, StorageNote
from tbmem.model.category import Category
from tbmem.runtime.process.optimizer_hook import OptimizerHook
from tbmem.runtime.profiling.model_names import ModelNames, numbered
from tbmem.runtime.profiling.saved_tensors import SavedTensorRecorder
from tbmem.sources.torch_state import storages
from tbmem.sources.torch_state.user_modes import Unseen


class AddressRecorder:
    """Records the addresses of named tensors during a window; refers weakly to models and optimizers."""

    def __init__(self) -> None:
        self._models = ModelNames()
        self._optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, str] = weakref.WeakKeyDictionary()
        """With the prefix of parameters that have no name."""
        self._parameter_names: dict[int, str] = {}
        self._module_names: dict[int, str] = {}
        self._named: dict[int, weakref.ref[Any]] = {}
        self._notes: list[StorageNote] | None = None
        self._saved = SavedTensorRecorder(self._add_saved, self._module_names)
        self._hook: OptimizerHook | None = None
        self._gaps = 0
        self._long_lived: set[tuple[str, int]] = set()

    def watch(self, model: torch.nn.Module | None, *optimizers: torch.optim.Optimizer) -> None:
        """Register a model's names and optimizers, or these alone; raises TypeError if an argument is neither.

        Names of several models begin with the variable of each in the calling function, or with its class.
        """
        if not isinstance(model, torch.nn.Module) and (model is not None or not optimizers):
            raise TypeError(f"watch() takes a torch.nn.Module first, not {type(model).__name__}")
        for optimizer in optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise TypeError(f"watch() takes optimizers after the model, not {type(optimizer).__name__}")
        for optimizer in optimizers:
            self._add_optimizer(optimizer)
        if model is not None:
            self._models.add(model, sys._getframe(1))
            for prefix, each in self._models.items():
                for name, tensor in each.named_parameters(prefix):
                    self._name(tensor, name, self._parameter_names)
                for name, module in each.named_modules(prefix=prefix):
                    self._name(module, name, self._module_names)

    def _add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer not in self._optimizers:
            label = type(optimizer).__name__
            last = numbered([*self._optimizers.values(), label])[-1]
            self._optimizers[optimizer] = f"{last}." if self._optimizers else ""

    def _name(self, target: object, name: str, names: dict[int, str]) -> None:
        """Name an object by its ``id`` during its lifetime: a later object may have the same."""
        key = id(target)
        names[key] = name
        self._named[key] = weakref.ref(target, lambda _gone: names.pop(key, None))

    def open(self) -> None:
        """Start to observe optimizer steps, at a microsecond each."""
        if self._hook is None:
            self._hook = OptimizerHook(self._after_optimizer_step)

    def abandon(self) -> None:
        """Stop recording and discard the notes."""
        self._saved.end()
        self._notes = None

    def close(self) -> None:
        """Remove all hooks."""
        self.abandon()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def begin(self) -> None:
        """Start a window: record existing tensors, and saved tensors from now on."""
        self._notes, self._gaps = self._long_lived_notes(), 0
        self._long_lived = {(note.device, note.address) for note in self._notes}
        self._saved.begin()

    def end(self, about: Mapping[str, Any]) -> AddressBook:
        """End the window: record existing tensors and return the address book."""
        self._saved.end()
        notes = [*(self._notes or []), *self._long_lived_notes()]
        self._notes = None
        return AddressBook.from_notes(notes, {**about, "gaps": self._gaps})

    def _add_saved(self, note: StorageNote) -> None:
        """Record a saved tensor, unless it is a long-lived one such as a weight."""
        if self._notes is not None and (note.device, note.address) not in self._long_lived:
            self._notes.append(note)

    def _after_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Record gradients and state, which exist at this moment; zero_grad may follow."""
        self._add_optimizer(optimizer)
        if self._notes is None:
            return
        try:
            with Unseen():
                self._notes.extend(self._optimizer_notes(optimizer))
        except Exception as error:
            raise_interruption(error)
            # a gap in the address book is better than an error in the training loop
            self._gaps += 1

    def _long_lived_notes(self) -> list[StorageNote]:
        notes: list[StorageNote] = []
        for prefix, model in self._models.items():
            notes += [*storages.model_notes(model, prefix), *storages.gradient_notes(model.named_parameters(prefix))]
        so_far = [*(self._notes or []), *notes]
        noted = {(note.device, note.address) for note in so_far if note.category is Category.PARAMETER}
        for optimizer in self._optimizers:
            for name, parameter in self._parameters_of(optimizer):
                found = storages.tensor_notes(parameter, Category.PARAMETER, name)
                notes += [note for note in found if (note.device, note.address) not in noted]
            notes += self._optimizer_notes(optimizer)
        return notes

    def _optimizer_notes(self, optimizer: torch.optim.Optimizer) -> Iterator[StorageNote]:
        yield from storages.gradient_notes(self._parameters_of(optimizer))
        prefix = self._optimizers.get(optimizer, "")
        yield from storages.optimizer_state_notes(optimizer, self._parameter_names, prefix)

    def _parameters_of(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
        return storages.optimizer_parameters(optimizer, self._parameter_names, self._optimizers.get(optimizer, ""))
