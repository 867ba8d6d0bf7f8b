"""Tensors that autograd saves for backward go in; their storages and the saving module come out, training untouched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from tbmem.model.address_book import StorageNote
from tbmem.model.category import Category
from tbmem.sources.tensors import tensor_notes

_autograd: Any = torch._C._autograd


class SavedTensorWatch:
    """Notes every tensor that is saved for backward while it is on.

    It hands each tensor on as it is, and checks for changes in place as torch does without hooks. It stays off
    where hooks of someone else are set (activation offloading around the whole loop): only the innermost pair of
    hooks is called.

    Args:
        note: Takes each note.
        module_names: Name by ``id`` of the module, to say who saved a tensor.
    """

    def __init__(self, note: Callable[[StorageNote], None], module_names: Mapping[int, str]) -> None:
        self._note = note
        self._module_names = module_names
        self._hooks: saved_tensors_hooks | None = None
        self._on = False
        self._pid = os.getpid()
        self._disable: Callable[..., None] | None = None

    def begin(self) -> None:
        """Start noting, if that is possible without getting in anybody's way."""
        if self._hooks is not None or _top_hooks() is not None or not _can_be_disabled():
            return
        self._hooks = saved_tensors_hooks(self._pack, _hand_back)
        self._hooks.__enter__()
        self._on = True
        self._let_functorch_pass()

    def end(self) -> None:
        """Stop noting.

        A context that the user has opened since and not closed lies above our hooks: then they stay where they
        are, without effect, until ``end`` is called again.
        """
        self._on = False
        if self._disable is not None:
            _autograd._saved_tensors_hooks_disable = self._disable
            self._disable = None
        top = _top_hooks()
        if self._hooks is not None and top is not None and top[0] == self._pack:
            self._hooks.__exit__(None, None, None)
            self._hooks = None

    def _pack(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int | None]:
        if self._on and self._pid == os.getpid():
            try:
                name = self._saving_module(sys._getframe(1))
                for note in tensor_notes(tensor, Category.ACTIVATION, name):
                    self._note(note)
            except Exception:
                self._on = False
        return tensor, _version(tensor)

    def _saving_module(self, frame: FrameType | None) -> str:
        """The innermost watched module whose forward is running."""
        while frame is not None:
            if frame.f_code.co_name == "_call_impl":
                name = self._module_names.get(id(frame.f_locals.get("self")))
                if name is not None:
                    return name
            frame = frame.f_back
        return ""

    def _let_functorch_pass(self) -> None:
        """torch.func refuses to run while hooks are set; ours may be set aside, so let it do that.

        The C++ function takes a flag for just that, which torch.func does not pass (torch 2.13,
        ``torch/autograd/graph.py``, ``disable_saved_tensors_hooks``).
        """
        original = self._disable = _autograd._saved_tensors_hooks_disable

        def disable(message: str, fail_if_non_empty: bool = True) -> None:
            top = _top_hooks()
            ours = top is not None and top[0] == self._pack
            original(message, fail_if_non_empty and not ours)

        _autograd._saved_tensors_hooks_disable = disable


def _hand_back(saved: tuple[torch.Tensor, int | None]) -> torch.Tensor:
    """The tensor as it was saved; torch leaves its check for changes in place to whoever sets hooks."""
    tensor, version = saved
    if version is not None and tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation:"
            f" [{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version}"
            " instead."
        )
    return tensor


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return tensor._version
    except RuntimeError:  # inference tensors keep none
        return None


def _top_hooks() -> tuple[Any, Any] | None:
    hooks: tuple[Any, Any] | None = _autograd._top_saved_tensors_default_hooks(True)
    return hooks


def _can_be_disabled() -> bool:
    """Whether this torch lets hooks be set aside; without that, torch.func would fail inside a window."""
    if not _autograd._saved_tensors_hooks_is_enabled():
        return False
    try:
        _autograd._saved_tensors_hooks_disable("tbmem asks whether hooks can be set aside", False)
    except TypeError:
        return False
    _autograd._saved_tensors_hooks_enable()
    return True
