"""Records the storages that autograd saves for backward, and the module that saves them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import saved_tensors_hooks

from tbmem.interruption import raise_interruption
from tbmem.model.address_book import StorageNote
from tbmem.model.category import Category
from tbmem.requirements import TorchFeature
from tbmem.runtime.process.lifecycle import Process
from tbmem.sources.torch_state.storages import tensor_notes

_autograd: Any = torch._C._autograd
_functions: Any = BackwardCFunction
_torch_saved_tensors: Callable[[Any], Any] = _functions.saved_tensors.__get__

_HINT = (
    "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with"
    " torch.autograd.set_detect_anomaly(True)."
)
_HINT_OF_ANOMALY_MODE = (
    "Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable in"
    " question was changed in there or anywhere later. Good luck!"
)
_Saved = tuple[torch.Tensor, int | None, bool, str]
"""Stored by autograd in place of a tensor: an alias, its version, whether it is the tensor itself, and operation and
output of the tensor for torch's message about an in-place change."""


class SavedTensorRecorder:
    """Records every tensor that is saved for backward, with the name of its module from names by ``id``.

    It stores what torch stores without hooks: a leaf itself, and of other tensors an alias without ``grad_fn``.
    The tensor itself would form a cycle that the garbage collector cannot see if an operation saves its own output
    (ReLU, softmax, exp). In-place changes are checked as by torch without hooks. Nothing is recorded if other hooks
    are set (activation offloading): only the innermost pair of hooks is called.
    """

    def __init__(self, note: Callable[[StorageNote], None], module_names: Mapping[int, str]) -> None:
        self._note = note
        self._module_names = module_names
        self._hooks: saved_tensors_hooks | None = None
        self._on = False
        self._pid = Process.number
        self._disable: Callable[..., None] | None = None

    def begin(self) -> None:
        """Start recording, unless other hooks are set or hooks are disabled, or torch is too old to tell."""
        if TorchFeature.SAVED_TENSORS.missing:
            return
        is_set = _autograd._top_saved_tensors_default_hooks(True) is not None
        if is_set or self._hooks is not None or not _autograd._saved_tensors_hooks_is_enabled():
            return
        self._hooks = saved_tensors_hooks(self._pack, _unpack)
        self._hooks.__enter__()
        self._on = True
        self._let_functorch_pass()
        _functions.saved_tensors = property(_saved_tensors)

    def end(self) -> None:
        """Stop recording; below hooks set later ours remain, without effect, until ``end`` is called again."""
        self._on = False
        if self._disable is not None:
            _autograd._saved_tensors_hooks_disable = self._disable
            self._disable = None
            del _functions.saved_tensors
        if self._hooks is not None and self._is_on_top():
            self._hooks.__exit__(None, None, None)
            self._hooks = None

    def _is_on_top(self) -> bool:
        top = _autograd._top_saved_tensors_default_hooks(True)
        return bool(top is not None and top[0] == self._pack)

    def _pack(self, tensor: torch.Tensor) -> _Saved:
        """Note the tensor, and return an alias: the same storage and version counter without ``grad_fn``.

        Runs for every saved tensor, and the trace records each Python call: hence one long function. A leaf is its own
        alias, so that it follows ``parameter.data = ...``. The call of ``detach`` is hidden from ``__torch_function__``
        and profilers, but not from dispatch modes, which treat unknown tensors as constants.
        """
        if self._on and self._pid == Process.number:
            try:
                name = self._saving_module(sys._getframe(1))
                with torch._C.DisableTorchFunction():
                    for note in tensor_notes(tensor, Category.ACTIVATION, name):
                        self._note(note)
            except Exception as error:
                raise_interruption(error)
                self._on = False
        alias, origin = tensor, ""
        if not tensor.is_leaf:
            try:
                with torch._C.DisableTorchFunction():
                    _autograd._enable_record_function(False)
                    try:
                        alias = tensor.detach()
                    finally:
                        _autograd._enable_record_function(True)
            except Exception as error:  # nosec B110  # see below
                raise_interruption(error)
                pass  # for a subclass without detach, torch's own unpacking raises
            node = tensor.grad_fn
            origin = f", which is output {tensor.output_nr} of {node.name()}," if node is not None else ""
        try:
            version = alias._version
        except RuntimeError as error:  # inference tensors keep none
            raise_interruption(error)
            version = None
        return alias, version, alias is tensor, origin

    def _saving_module(self, frame: FrameType | None) -> str:
        while frame is not None:
            if frame.f_code.co_name == "_call_impl":
                name = self._module_names.get(id(frame.f_locals.get("self")))
                if name is not None:
                    return name
            frame = frame.f_back
        return ""

    def _let_functorch_pass(self) -> None:
        """Let torch.func disable our hooks: the C++ function has a flag for it that torch.func does not pass."""
        original = self._disable = _autograd._saved_tensors_hooks_disable

        def disable(message: str, fail_if_non_empty: bool = True) -> None:
            original(message, fail_if_non_empty and not self._is_on_top())

        _autograd._saved_tensors_hooks_disable = disable


def _unpack(saved: _Saved) -> torch.Tensor:
    """The saved tensor, after the check for in-place changes that torch leaves to saved-tensor hooks."""
    tensor, version, is_original, origin = saved
    if version is not None and tensor._version != version:
        sizes: object = tensor._nested_tensor_size() if tensor.is_nested else list(tensor.shape)
        hint = _HINT_OF_ANOMALY_MODE if torch.is_anomaly_enabled() else _HINT
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation:"
            f" [{tensor.type()} {sizes}]{origin} is at version {tensor._version}; expected version {version} instead."
            f" {hint}"
        )
    originals: list[torch.Tensor | None] | None = getattr(_unpacking, "originals", None)
    if originals is not None:
        originals.append(tensor if is_original else None)
    return tensor


_unpacking = threading.local()
"""``originals``: those returned to the ``ctx.saved_tensors`` that is being read in this thread."""


def _saved_tensors(context: Any) -> tuple[torch.Tensor | None, ...]:
    """``ctx.saved_tensors`` with leaves themselves; with hooks torch returns copies without ``weight.main_grad``."""
    originals: list[torch.Tensor | None] = []
    _unpacking.originals = originals
    try:
        unpacked: tuple[torch.Tensor | None, ...] = _torch_saved_tensors(context)
    finally:
        _unpacking.originals = None
    if len(originals) != sum(tensor is not None for tensor in unpacked):
        return unpacked  # saved under other hooks, or before the window
    returned = []
    for copy in unpacked:
        original = originals.pop(0) if copy is not None else None
        returned.append(copy if original is None else original)
    return tuple(returned)
