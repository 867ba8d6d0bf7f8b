"""Records the storages that autograd saves for backward, and the module that saves them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import saved_tensors_hooks

from tbmem.model.address_book import StorageNote
from tbmem.model.category import Category
from tbmem.sources.torch_state.storages import tensor_notes

_autograd: Any = torch._C._autograd
_functions: Any = BackwardCFunction
"""Class of ``ctx`` in the backward of custom functions."""
_torch_saved_tensors: Callable[[Any], Any] = _functions.saved_tensors.__get__


class _Saved(NamedTuple):
    """Object that autograd stores in place of a tensor while the hooks are set."""

    tensor: torch.Tensor
    version: int | None
    is_original: bool
    """Whether it is the program's tensor and not an alias."""
    origin: str
    """Operation and output of the tensor, for torch's message about an in-place change."""


class SavedTensorRecorder:
    """Records every tensor that is saved for backward.

    It stores what torch stores without hooks: a leaf itself, and of other tensors an alias without ``grad_fn``.
    The tensor itself would form a cycle that the garbage collector cannot see if an operation saves its own output
    (ReLU, softmax, exp). In-place changes are checked as by torch without hooks. Nothing is recorded if other hooks
    are set (activation offloading): only the innermost pair of hooks is called.

    Args:
        note: Called with each note.
        module_names: Name by ``id`` of the module.
    """

    def __init__(self, note: Callable[[StorageNote], None], module_names: Mapping[int, str]) -> None:
        self._note = note
        self._module_names = module_names
        self._hooks: saved_tensors_hooks | None = None
        self._on = False
        self._pid = os.getpid()
        self._disable: Callable[..., None] | None = None

    def begin(self) -> None:
        """Start recording, unless other hooks are set."""
        if self._hooks is not None or _top_hooks() is not None or not _can_be_disabled():
            return
        self._hooks = saved_tensors_hooks(self._pack, _unpack)
        self._hooks.__enter__()
        self._on = True
        self._let_functorch_pass()
        _functions.saved_tensors = property(_saved_tensors)

    def end(self) -> None:
        """Stop recording.

        If hooks set later are still active, ours remain below them without effect until ``end`` is called again.
        """
        self._on = False
        if self._disable is not None:
            _autograd._saved_tensors_hooks_disable = self._disable
            self._disable = None
            del _functions.saved_tensors
        top = _top_hooks()
        if self._hooks is not None and top is not None and top[0] == self._pack:
            self._hooks.__exit__(None, None, None)
            self._hooks = None

    def _pack(self, tensor: torch.Tensor) -> _Saved:
        if self._on and self._pid == os.getpid():
            try:
                name = self._saving_module(sys._getframe(1))
                for note in tensor_notes(tensor, Category.ACTIVATION, name):
                    self._note(note)
            except Exception:
                self._on = False
        alias = _alias(tensor)
        return _Saved(alias, _version(alias), alias is tensor, _origin(tensor))

    def _saving_module(self, frame: FrameType | None) -> str:
        """The innermost named module whose forward is running."""
        while frame is not None:
            if frame.f_code.co_name == "_call_impl":
                name = self._module_names.get(id(frame.f_locals.get("self")))
                if name is not None:
                    return name
            frame = frame.f_back
        return ""

    def _let_functorch_pass(self) -> None:
        """Let torch.func disable our hooks, which it otherwise refuses while hooks are set.

        The C++ function has a flag for this that torch.func does not pass (torch 2.13, ``torch/autograd/graph.py``).
        """
        original = self._disable = _autograd._saved_tensors_hooks_disable

        def disable(message: str, fail_if_non_empty: bool = True) -> None:
            top = _top_hooks()
            ours = top is not None and top[0] == self._pack
            original(message, fail_if_non_empty and not ours)

        _autograd._saved_tensors_hooks_disable = disable


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same storage and version counter without ``grad_fn``.

    A leaf is returned itself, so that it follows ``parameter.data = ...``. The call is hidden from
    ``__torch_function__`` and profilers, but not from dispatch modes, which treat unknown tensors as constants.
    """
    if tensor.is_leaf:
        return tensor
    try:
        with torch._C.DisableTorchFunction():
            _autograd._enable_record_function(False)
            try:
                return tensor.detach()
            finally:
                _autograd._enable_record_function(True)
    except Exception:
        return tensor  # for a subclass without detach, torch's own unpacking raises


def _origin(tensor: torch.Tensor) -> str:
    node = tensor.grad_fn
    return f", which is output {tensor.output_nr} of {node.name()}," if node is not None else ""


def _unpack(saved: _Saved) -> torch.Tensor:
    """The saved tensor, after the check for in-place changes that torch leaves to saved-tensor hooks."""
    tensor, version, is_original, origin = saved
    if version is not None and tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation:"
            f" [{tensor.type()} {_sizes(tensor)}]{origin} is at version {tensor._version}; expected version {version}"
            f" instead. {_hint()}"
        )
    if _unpacking.originals is not None:
        _unpacking.originals.append(tensor if is_original else None)
    return tensor


class _Unpacking(threading.local):
    """The originals returned to the ``ctx.saved_tensors`` that is being read in this thread."""

    originals: list[torch.Tensor | None] | None = None


_unpacking = _Unpacking()


def _saved_tensors(context: Any) -> tuple[torch.Tensor | None, ...]:
    """``ctx.saved_tensors`` of custom functions, with leaves themselves as without hooks.

    With hooks torch returns a copy without the Parameter's attributes, such as ``weight.main_grad``.
    """
    originals: list[torch.Tensor | None] = []
    _unpacking.originals = originals
    try:
        unpacked: tuple[torch.Tensor | None, ...] = _torch_saved_tensors(context)
    finally:
        _unpacking.originals = None
    if len(originals) != sum(tensor is not None for tensor in unpacked):
        return unpacked  # saved under other hooks, or before the window
    returned_originals = iter(originals)
    return tuple(copy if copy is None else _or(next(returned_originals), copy) for copy in unpacked)


def _or(original: torch.Tensor | None, copy: torch.Tensor) -> torch.Tensor:
    return copy if original is None else original


def _sizes(tensor: torch.Tensor) -> object:
    return tensor._nested_tensor_size() if tensor.is_nested else list(tensor.shape)


def _hint() -> str:
    if torch.is_anomaly_enabled():
        return (
            "Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable"
            " in question was changed in there or anywhere later. Good luck!"
        )
    return (
        "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with"
        " torch.autograd.set_detect_anomaly(True)."
    )


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return tensor._version
    except RuntimeError:  # inference tensors keep none
        return None


def _top_hooks() -> tuple[Any, Any] | None:
    hooks: tuple[Any, Any] | None = _autograd._top_saved_tensors_default_hooks(True)
    return hooks


def _can_be_disabled() -> bool:
    """Whether this torch can disable hooks; otherwise torch.func would fail inside a window."""
    if not _autograd._saved_tensors_hooks_is_enabled():
        return False
    try:
        _autograd._saved_tensors_hooks_disable("tbmem asks whether hooks can be set aside", False)
    except TypeError:
        return False
    _autograd._saved_tensors_hooks_enable()
    return True
