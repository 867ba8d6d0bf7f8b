"""Logs the allocation and the free of each tensor storage while operators run.

Views share a storage, which is freed with its last tensor.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tbmem.errors import UsageError
from tbmem.estimator.fake_tensors.fake_cuda import patched
from tbmem.estimator.fake_tensors.workspaces import NOTHING, Blocks, Result, blocks_of, workspace_bytes
from tbmem.estimator.refusals import REHEARSE
from tbmem.estimator.tracker.allocation_log import AllocationLog
from tbmem.estimator.tracker.known_values import DependsOnValueError, KnownValues, UnknownNumber, is_integer, tensors_in
from tbmem.estimator.tracker.module_stack import ModuleStack
from tbmem.model.category import Category, Phase
from tbmem.model.gpus import Compute

_ATEN = torch.ops.aten
_SUMS = frozenset(
    getattr(_ATEN, name).default
    for name in ("scatter_add", "index_add", "index_put", "select_scatter", "slice_scatter")
) | {_ATEN.scatter.src}
"""Backward formulas that are in-place on plain tensors, and out-of-place on subclasses."""
_MATRIX = frozenset(
    getattr(_ATEN, name).default for name in ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "_scaled_mm")
)
_COMMUNICATION = frozenset({"_c10d_functional", "c10d", "fsdp", "symm_mem"})
_READ = _ATEN._local_scalar_dense.default
_CHECKS = frozenset({_ATEN.allclose.default, _ATEN.equal.default})
"""Operators that return a Python bool."""
_ALL = frozenset({_ATEN.all.default, _ATEN.all.dim, _ATEN.all.dims})
_HOLDS = "tbmem_holds"
"""Attribute of the result of ``all()``: assumed to be True."""
_NO_KERNEL = "Could not run 'aten::empty"
_DEVICE = torch.ops.prim.device.default


class _Ref(weakref.ref):  # type: ignore[type-arg]
    """A storage, its row (-1 while its size is 0) and its last row."""

    __slots__ = ("key", "last", "row")
    key: int
    row: int
    last: int


class AllocationTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Logs the storages of one device type."""

    supports_higher_order_operators = True

    def __init__(self, device: str, mode: FakeTensorMode | None = None, gpu: Compute | None = None) -> None:
        """Create a tracker; it is enabled as a context manager.

        Args:
            device: Device type whose storages count.
            mode: Only this mode's tensors count; ``None``: real ones.
            gpu: Whose kernels' workspaces count; ``None`` for none.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.log, self.modules = AllocationLog(), ModuleStack()
        self.begin_step, self.begin_phase = self.log.begin_step, self.log.begin_phase
        self.paused = 0
        self.communicates = 0
        self.values = KnownValues()
        self.unknown_reads: dict[str, int] = {}
        """Number of reads of unknown values, by source line."""
        self.known_reads: dict[str, None] = {}
        """Source lines that read known values."""
        self._device = device
        self._mode = mode
        self._gpu = gpu
        self._index: int | None = None
        """Of the device whose storages were counted."""
        self._storages: dict[int, _Ref] = {}
        self._owners: dict[int, str] = {}
        """Module of each marked row."""
        self._workspaces: set[bool] = set()
        self.distributed: type | None = None
        """Type of distributed tensors, which dispatch to operators on their local shards first."""

    def mark(self, tensor: Any, category: Category, module: str | None = None) -> None:
        """Set the category and the module of a tensor; a category other than COMMUNICATION is not replaced.

        A storage of several modules, as FSDP2's gradients of a layer, is attributed to their common parent.
        """
        if self.distributed is not None and isinstance(tensor, self.distributed):
            tensor = getattr(tensor, "_local_tensor")  # noqa: B009  # no type for it is known here
        reference = self._storages.get(tensor.untyped_storage()._cdata) if isinstance(tensor, torch.Tensor) else None
        if reference is None or (row := reference.row) < 0:
            return
        if self.log.categories.get(row) is Category.COMMUNICATION:
            self.log.categories[row] = category
        if self.log.categories.setdefault(row, category) is category and module is not None:
            before = self._owners.setdefault(row, module)
            self._owners[row] = module if before == module else self.modules.common_parent(before, module)
            self.log.set_module(row, self._owners[row])

    def adopt(self, tensor: torch.Tensor) -> None:
        """Count a tensor created before the tracker was enabled."""
        self._track(tensor, "before")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.distributed is not None and any(kind is self.distributed for kind in types):
            return NotImplemented
        if func is _DEVICE and isinstance(args[0], FakeTensor):
            return args[0].device
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and (result := self._composed(func, args, kwargs)) is not NotImplemented:
            return result
        if self._mode is not None and func is _READ:
            return self._read(args[0])
        if self._mode is not None and func in _CHECKS:
            return self._check(func, args)
        result = func(*args, **kwargs) if self._mode is None else self._run(func, args, kwargs)
        if self.paused:
            return result
        if self._mode is not None and func in _ALL:
            setattr(result, _HOLDS, True)
        self._note_forward()
        self._log(func, args, kwargs, result)
        return result

    def _log(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Log an operator's results, and what a GPU allocates and frees while it runs."""
        # with a graph of gradients, and in a forward that is computed again, autograd accumulates out of place
        in_place = _in_backward() and not torch.is_grad_enabled()
        accumulates = in_place and (func in _SUMS or _adds_gradients(func, args, kwargs))
        held: list[int] = []
        for block in self._blocks(func, args):
            if isinstance(block, Result):
                for tensor in tensors_in(
                    result if block.number < 0 or isinstance(result, torch.Tensor) else result[block.number]
                ):
                    self._track(tensor, func.name(), accumulates, func.namespace in _COMMUNICATION, block.size)
            elif block > 0:
                held.append(self.log.alloc(block, f"{func.name()} (scratch)", *self._where()))
                self.log.categories[held[-1]] = Category.TEMPORARY
            elif block < 0:
                held.remove(freed := next(row for row in reversed(held) if self.log.rows[row].size == -block))
                self.log.free(freed)
        for row in reversed(held):
            self.log.free(row)
        if self._gpu is not None:
            self._log_workspace(func, result, self._gpu)

    def _blocks(self, func: Any, args: tuple[Any, ...]) -> Blocks:
        return NOTHING if self._gpu is None else blocks_of(func, args, self._gpu)

    def _composed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator as those it consists of, each seen by the tracker; NotImplemented if it is a kernel.

        Outside of inference mode autograd has done this before.
        """
        if not isinstance(func, torch._ops.OpOverload):
            return NotImplemented
        with self:
            return func.decompose(*args, **kwargs)

    def _note_forward(self) -> None:
        if _in_backward():
            return
        if self.log.phase is Phase.BACKWARD and self.modules.current:
            # a user's own step does not report its phases
            self.begin_phase(Phase.FORWARD)
        if self.log.phase is Phase.FORWARD:
            self.modules.record_nodes(self.log.lines.current_stack)

    def _where(self) -> tuple[str, Phase, int]:
        """The running module, the phase, and the source lines; in the backward pass those of the forward."""
        if not _in_backward():
            return self.modules.current, self.log.phase, self.log.lines.current_stack()
        if self.log.phase is Phase.FORWARD:
            # a user's own step does not report its phases
            self.begin_phase(Phase.BACKWARD)
        if self.modules.current:
            return self.modules.current, Phase.BACKWARD, self.log.lines.current_stack()
        node = torch._C._current_autograd_node()
        module, stack = self.modules.owner_of_node(node._sequence_nr()) if node is not None else ("", -1)
        return module, Phase.BACKWARD, stack

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A tensor's values, if known; records the line that reads them."""
        real = self.values.of(tensor)
        if real is not None and getattr(tensor, "constant", None) is None:
            self.known_reads[self.line()] = None
        return real

    def line(self) -> str:
        """The source line or module that reads a value."""
        return self.log.lines.current_line() or self.modules.current or "outside of modules"

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            result = func(*args, **kwargs)
        except DynamicOutputShapeException:
            with self:
                result = self.values.run_data_dependent(func, args, kwargs)
            if result is None:
                raise
            self.known_reads[self.line()] = None
            return result
        except NotImplementedError as error:
            if _NO_KERNEL not in str(error):
                raise
            # the message names aten::empty instead of the operator
            raise NotImplementedError(func.name()) from error
        self.values.propagate(func, args, kwargs, result)
        return result

    def _check(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Result of comparing two tensors; True if their values are unknown."""
        first, second = (self.values.of(tensor) for tensor in args[:2])
        if first is not None and second is not None:
            with torch._C._DisableTorchDispatch():
                return bool(func(first, second, *args[2:]))
        self.count_unknown_read()
        return True

    def _read(self, tensor: torch.Tensor) -> bool | int | float:
        """A tensor's value as a Python number; a counted placeholder if it is unknown.

        Raises:
            DependsOnValueError: An integer is unknown, which may become a size or an index.
        """
        real = self.known(tensor)
        if real is not None:
            with torch._C._DisableTorchDispatch():
                value: bool | int | float = real.item()
            return value
        if tensor.dtype is not torch.bool and not tensor.dtype.is_floating_point:
            raise DependsOnValueError(self.line())
        self.count_unknown_read()
        if tensor.dtype is torch.bool:
            # True for all(), False for any(): a program continues
            return getattr(tensor, _HOLDS, False)
        # on the host it is an optimizer's step count; on the GPU the loss, a norm, or found_inf
        return 1.0 if tensor.device.type == "cpu" else 0.0

    def count_unknown_read(self) -> None:
        """Count a read of an unknown value."""
        line = self.line()
        self.unknown_reads[line] = self.unknown_reads.get(line, 0) + 1

    def _counts(self, tensor: torch.Tensor) -> bool:
        if tensor.device.type != self._device:
            return False
        if self._mode is None:
            return not isinstance(tensor, FakeTensor)
        # libraries compute shapes in fake modes of their own, whose tensors do not count
        return getattr(tensor, "fake_mode", None) is self._mode

    def _track(
        self,
        tensor: torch.Tensor,
        operator: str,
        accumulates: bool = False,
        communicates: bool = False,
        size: int = 0,
    ) -> None:
        if not self._counts(tensor):
            return
        if self._mode is not None:
            self._check_device(tensor.device.index)
        storage = tensor.untyped_storage()
        reference = self._storages.get(storage._cdata)
        if reference is None:
            reference = _Ref(storage, self._freed)
            reference.key, reference.row, reference.last = storage._cdata, -1, -1
            self._storages[storage._cdata] = reference
        elif reference.row >= 0:
            return
        if size := size or storage.nbytes():
            self._allocated(reference, size, operator, accumulates, communicates)

    def _check_device(self, index: int | None) -> None:
        if self._index is None:
            self._index = index
        elif index is not None and index != self._index:
            raise UsageError(
                f"{self.line()}: tensors are on {self._device}:{self._index} and {self._device}:{index}, and an"
                f" estimate has one GPU: put all on one, or {REHEARSE}"
            )

    def _allocated(
        self, reference: _Ref, size: int, operator: str, accumulates: bool = False, communicates: bool = False
    ) -> None:
        module, phase, stack = self._where()
        reference.row = reference.last = self.log.alloc(size, operator, module, phase, stack, accumulates)
        if communicates or self.communicates:
            self.log.categories[reference.row] = Category.COMMUNICATION
        elif phase is Phase.BACKWARD and self.modules.current:
            # a forward within a backward: recomputed activations
            self.log.categories[reference.row] = Category.ACTIVATION

    def _freed(self, reference: _Ref) -> None:
        self._storages.pop(reference.key, None)
        if reference.row >= 0:
            self.log.free(reference.row)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Log the new size of a storage that was resized, as FSDP does; its category stays."""
        reference = self._storages.get(storage._cdata)
        if reference is None or self.paused:
            return
        size = storage.size()
        if reference.row >= 0 and self.log.rows[reference.row].size == size:
            return
        category = self.log.categories.get(reference.last)
        if reference.row >= 0:
            self.log.free(reference.row)
            reference.row = -1
        if size:
            self._allocated(reference, size, "resize_")
            if category is not None:
                self.log.categories[reference.row] = category

    def _log_workspace(self, func: Any, result: Any, gpu: Compute) -> None:
        """Log cuBLAS's workspace, which is allocated at the first matrix product of each thread and kept."""
        thread = _in_backward()
        if func not in _MATRIX or thread in self._workspaces or not self._counts(result):
            return
        self._workspaces.add(thread)
        row = self.log.alloc(workspace_bytes(gpu.capability), "cuBLAS workspace", "", *self._where()[1:])
        self.log.categories[row] = Category.TEMPORARY


@contextlib.contextmanager
def counting(tracker: AllocationTracker, counter: str) -> Iterator[None]:
    """Increment a counter of the tracker within the block, or while the decorated function runs."""
    setattr(tracker, counter, getattr(tracker, counter) + 1)
    try:
        yield
    finally:
        setattr(tracker, counter, getattr(tracker, counter) - 1)


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _adds_gradients(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether autograd would accumulate in place if these were plain tensors; it never does into a view.

    The gradient of a linear layer's weight is a view.
    Source: ``torch/csrc/autograd/input_buffer.cpp``, ``can_accumulate_inplace``.
    """
    return func is _ATEN.add.Tensor and len(args) == 2 and not kwargs and not args[0]._is_view()


@contextlib.contextmanager
def patched_value_reads(tracker: AllocationTracker) -> Iterator[None]:
    """Within the block ``item()``, ``bool()``, ``float()`` and ``numpy()`` of fake tensors return known values.

    The tracker counts reads of unknown ones.
    """
    numpy = torch.Tensor.numpy

    def counted(original: Callable[[torch.Tensor], Any], kind: type) -> Callable[[torch.Tensor], Any]:
        def read(tensor: torch.Tensor) -> Any:
            is_count = isinstance(tensor, FakeTensor) and is_integer(tensor) and tensor.dtype is not torch.bool
            if not is_count or tensor.numel() != 1 or tracker.known(tensor) is not None:
                return original(tensor)
            tracker.count_unknown_read()
            return UnknownNumber.read_at(tracker.line(), 0.0) if kind is UnknownNumber else kind(0)

        return read

    def as_numpy(tensor: torch.Tensor, **options: Any) -> Any:
        real = tracker.known(tensor) if isinstance(tensor, FakeTensor) else None
        if real is None:
            return numpy(tensor, **options)
        with torch._C._DisableTorchDispatch():
            return numpy(real, **options)

    with contextlib.ExitStack() as stack:
        for name, kind in (("item", UnknownNumber), ("__bool__", bool), ("__float__", float)):
            stack.enter_context(patched(torch.Tensor, name, counted(getattr(torch.Tensor, name), kind)))
        stack.enter_context(patched(torch.Tensor, "numpy", as_numpy))
        yield
