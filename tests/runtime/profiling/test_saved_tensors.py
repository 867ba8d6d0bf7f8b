"""Noting what autograd saves, and not being noticed while doing so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.utils.flop_counter
from torch.utils.checkpoint import checkpoint

from tbmem.model.address_book import StorageNote
from tbmem.model.category import Category
from tbmem.runtime.profiling.saved_tensors import SavedTensorRecorder


@contextmanager
def _watching(names: dict[int, str] | None = None) -> Iterator[list[StorageNote]]:
    notes: list[StorageNote] = []
    watch = SavedTensorRecorder(notes.append, names or {})
    watch.begin()
    try:
        yield notes
    finally:
        watch.end()


def test_notes_the_storage_that_backward_needs() -> None:
    # given an operation that saves its result
    x = torch.randn(64, requires_grad=True)

    # when it runs under the watch
    with _watching() as notes:
        y = x.exp()

    # then the result's storage was noted
    assert [(note.address, note.bytes, note.category) for note in notes] == [
        (y.untyped_storage().data_ptr(), 256, Category.ACTIVATION)
    ]


def test_names_the_module_that_saved_it() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid())
    names = {id(module): name for name, module in model.named_modules()}

    with _watching(names) as notes:
        model(torch.randn(2, 4))

    assert {note.name for note in notes} == {"0", "1"}


def test_gradients_are_bit_for_bit_the_same() -> None:
    # given the same network twice, one with double backward
    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        x = torch.randn(4, 8, requires_grad=True)
        (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        first.square().sum().backward()
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    plain = gradients()
    with _watching():
        watched = gradients()

    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))


def test_a_change_in_place_is_still_an_error() -> None:
    # given a result that is changed after it was saved
    with _watching():
        x = torch.randn(4, requires_grad=True)
        y = x.exp()
        y.add_(1)

        # when backward needs it, then torch's own error is raised
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_saved_tensors_do_not_live_longer() -> None:
    # given a graph made under the watch
    x = torch.randn(1000, requires_grad=True)
    with _watching():
        y = x.exp()
        z = y.sum()
        import weakref

        alive = weakref.ref(y.untyped_storage())
        del y
        # when backward has released it
        z.backward()

    # then nothing holds its storage
    assert alive() is None


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("transform", ["grad", "vjp", "jacrev", "hessian", "vmap"])
def test_torch_func_works_inside_a_window(transform: str) -> None:
    # given a transform that refuses to run while hooks are set
    def square(w: torch.Tensor) -> torch.Tensor:
        return (w * w).sum()

    w = torch.randn(3)
    calls = {
        "grad": lambda: torch.func.grad(square)(w),
        "vjp": lambda: torch.func.vjp(square, w)[1](torch.tensor(1.0))[0],
        "jacrev": lambda: torch.func.jacrev(square)(w),
        "hessian": lambda: torch.func.hessian(square)(w).diagonal() * w,
        "vmap": lambda: torch.func.vmap(lambda v: 2 * v)(w),
    }

    # when it runs under the watch
    with _watching():
        result = calls[transform]()

    # then it gives what it should
    torch.testing.assert_close(result, 2 * w)


def test_hooks_of_the_user_still_stop_torch_func() -> None:
    # given hooks of the user's own inside the window: torch refuses, and so it shall
    with (
        _watching(),
        torch.autograd.graph.save_on_cpu(),
        pytest.raises(RuntimeError, match="saved tensor hooks"),
    ):
        torch.func.grad(lambda w: (w * w).sum())(torch.randn(3))


def test_stays_off_where_hooks_are_set_already() -> None:
    with torch.autograd.graph.save_on_cpu(), _watching() as notes:
        torch.randn(4, requires_grad=True).exp()

    assert notes == []


def test_a_context_that_outlives_the_window_is_left_alone() -> None:
    # given a context of the user's that is opened inside the window and closed after it
    notes: list[StorageNote] = []
    watch = SavedTensorRecorder(notes.append, {})
    outer = torch.autograd.graph.save_on_cpu()
    watch.begin()
    outer.__enter__()

    # when the window ends first
    watch.end()
    outer.__exit__(None, None, None)
    torch.randn(4, requires_grad=True).exp()
    watch.end()

    # then nothing was noted, and (the autouse fixture looks) nothing is left
    assert notes == []


def test_activation_checkpointing_gives_the_same_gradients() -> None:
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8, requires_grad=True)

    layer(x).exp().sum().backward()
    expected = layer.weight.grad
    layer.weight.grad = None
    with _watching():
        checkpoint(lambda v: layer(v).exp(), x, use_reentrant=False).sum().backward()

    torch.testing.assert_close(layer.weight.grad, expected)


def test_an_error_in_noting_does_not_reach_the_training() -> None:
    def refuses(note: StorageNote) -> None:
        raise ValueError("no more room")

    watch = SavedTensorRecorder(refuses, {})
    watch.begin()
    try:
        torch.randn(4, requires_grad=True).exp().sum().backward()
    finally:
        watch.end()


@pytest.mark.slow
def test_compiled_code_is_not_compiled_again() -> None:
    # given a function compiled outside a window
    import torch._dynamo.utils as dynamo

    compiled = torch.compile(lambda x: (x @ x).relu().sum(), backend="aot_eager")
    x = torch.randn(4, 4, requires_grad=True)
    compiled(x).backward()
    graphs = dynamo.counters["stats"]["unique_graphs"]

    # when it runs inside and after one
    with _watching() as notes:
        compiled(x).backward()
    compiled(x).backward()

    # then its saved tensors were noted, and nothing was compiled again
    assert notes
    assert dynamo.counters["stats"]["unique_graphs"] == graphs


class _Scales(torch.autograd.Function):
    """Saves an input and its output, and has a backward that can be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        y = (x * scale).exp()
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, scale, y = ctx.saved_tensors
        return gradients[0] * y * scale, (gradients[0] * y * x).sum(0)


class _Tagged(torch.Tensor):
    """A subclass that counts what is called on it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


Graph = Callable[[torch.Tensor, torch.Tensor], Any]


def _double_backward(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.softmax(x @ w, -1).exp().relu().sum()
    first = torch.autograd.grad(y, (x, w), create_graph=True)
    return (*first, *torch.autograd.grad(sum(each.square().sum() for each in first), (x, w)))


def _twice(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x @ w).tanh().sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, w.grad


def _custom(x: torch.Tensor, w: torch.Tensor) -> Any:
    first = torch.autograd.grad(_Scales.apply(x, w[0]).sum(), (x, w), create_graph=True)
    return (*first, *torch.autograd.grad(first[0].sum() + first[1].sum(), (x, w)))


class _Accumulates(torch.autograd.Function):
    """Adds its gradient to an attribute of the weight, as sharded trainings do, and asks what it was given."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
        y = x @ weight
        ctx.save_for_backward(x, None, weight, y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, nothing, weight, y, scale = ctx.saved_tensors
        assert nothing is None
        assert scale is _SCALE
        assert isinstance(weight, torch.nn.Parameter)
        weight.main_grad += x.t() @ gradients[0] * scale + y.sum()
        return gradients[0] @ weight.t(), None, None


_SCALE = torch.tensor(3.0)


def _attributes_of_a_weight(x: torch.Tensor, w: torch.Tensor) -> Any:
    weight = torch.nn.Parameter(w.detach())
    weight.main_grad = torch.zeros(4, 4)
    y = _Accumulates.apply(x * 2, weight, _SCALE)
    y.sum().backward(retain_graph=True)
    y.exp().sum().backward()
    return x.grad, weight.main_grad


def _tensor_hooks(x: torch.Tensor, w: torch.Tensor) -> Any:
    seen = []
    y = (x @ w).sigmoid()
    y.register_hook(lambda gradient: seen.append(gradient.clone()) or gradient * 2)
    y.retain_grad()
    y.exp().sum().backward()
    return x.grad, w.grad, y.grad, *seen


def _hooks_inside(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        y = (x @ w).exp()
    y.relu().sum().backward()
    return x.grad, w.grad


def _checkpoints(x: torch.Tensor, w: torch.Tensor) -> Any:
    def block(v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout((v @ w).sigmoid(), 0.3).relu()

    y = checkpoint(block, x, use_reentrant=True)
    checkpoint(block, y, use_reentrant=False).sum().backward()
    return x.grad, w.grad


def _views_and_in_place(x: torch.Tensor, w: torch.Tensor) -> Any:
    base = (x @ w).clone()
    base[0].mul_(3)
    base[:, 1].sigmoid_()
    y = base.t().contiguous().relu_()
    y.square().sum().backward()
    return x.grad, w.grad


def _forward_mode(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        y = (dual @ w).exp().relu()
        tangent = torch.autograd.forward_ad.unpack_dual(y).tangent
        return (tangent, *torch.autograd.grad(tangent.sum() + y.sum(), (x, w)))


def _data_is_replaced(x: torch.Tensor, w: torch.Tensor) -> Any:
    """As sharded trainings do: what is saved of a parameter follows it."""
    y = (x * w[0]).sum()
    w.data = w.data * 3
    x.data = x.data * 2
    y.backward()
    return x.grad, w.grad


def _sparse(x: torch.Tensor, w: torch.Tensor) -> Any:
    adjacency = torch.eye(4).to_sparse()
    torch.sparse.mm(adjacency, x @ w).exp().sum().backward()
    return x.grad, w.grad


def _nested(x: torch.Tensor, w: torch.Tensor) -> Any:
    rows = torch.nested.as_nested_tensor([x[:2], x[2:]], layout=torch.jagged)
    (rows @ w).exp().values().sum().backward()
    return x.grad, w.grad


def _subclass(x: torch.Tensor, w: torch.Tensor) -> Any:
    _Tagged.calls = 0
    y = x.as_subclass(_Tagged).exp().mul(2)
    y.sum().backward()
    return x.grad, torch.tensor(_Tagged.calls)


def _vmap(x: torch.Tensor, w: torch.Tensor) -> Any:
    torch.vmap(lambda row: (row @ w).exp().softmax(-1))(x).square().sum().backward()
    return x.grad, w.grad


def _under_a_mode(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        (x @ w).exp().sum().backward()
    return x.grad, w.grad, torch.tensor(counter.get_total_flops())


GRAPHS: list[Graph] = [
    _double_backward,
    _twice,
    _custom,
    _attributes_of_a_weight,
    _tensor_hooks,
    _hooks_inside,
    _checkpoints,
    _views_and_in_place,
    _forward_mode,
    _data_is_replaced,
    _sparse,
    _nested,
    _subclass,
    _vmap,
    _under_a_mode,
]


@pytest.mark.torch_versions
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda each: each.__name__.strip("_"))
def test_what_is_computed_is_bit_for_bit_the_same(graph: Graph) -> None:
    def compute() -> list[torch.Tensor]:
        torch.manual_seed(0)
        x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        return [each.detach().clone() for each in graph(x, w)]

    # given
    try:
        alone = compute()
    except NotImplementedError as error:  # torch 2.6: nested tensors
        pytest.skip(f"this torch does not compute it: {error}")
    # when
    with _watching():
        watched = compute()
    # then
    assert len(alone) == len(watched)
    assert all(torch.equal(one, other) for one, other in zip(alone, watched, strict=True))


def _changes_an_output(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y.add_(1)
    return y


def _changes_an_input(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y * y
    y.add_(1)
    return z


def _changes_a_leaf(x: torch.Tensor) -> torch.Tensor:
    z = x * x
    with torch.no_grad():
        x.add_(1)
    return z


def _changes_a_view(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2)[1:].exp_()
    y.add_(1)
    return y


def _detaches_in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    z = y.square()
    y.detach().zero_()
    return z


@pytest.mark.torch_versions
@pytest.mark.parametrize("anomaly", [False, True])
@pytest.mark.parametrize(
    "change", [_changes_an_output, _changes_an_input, _changes_a_leaf, _changes_a_view, _detaches_in_place]
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in")
def test_a_change_in_place_is_the_same_error(change: Callable[[torch.Tensor], torch.Tensor], anomaly: bool) -> None:
    def complaint() -> str:
        x = torch.ones(3, requires_grad=True)
        with torch.autograd.set_detect_anomaly(anomaly), pytest.raises(RuntimeError) as raised:
            change(x).sum().backward()
        # which operation made the tensor, and the hint, are worded differently by each version of torch
        return re.sub(r", which is output .*?,|Hint: .*", "", str(raised.value))

    # given
    alone = complaint()
    # when
    with _watching():
        watched = complaint()
    # then
    assert watched == alone


@pytest.mark.torch_versions
def test_nothing_of_it_is_in_a_trace() -> None:
    # given
    def names() -> list[str]:
        with torch.profiler.profile() as profile:
            torch.ones(3, requires_grad=True).exp().relu().sum().backward()
        return [event.name for event in profile.events()]

    alone = names()
    # when
    with _watching():
        watched = names()
    # then a backward that has hooks copies what it unpacks, but nothing is recorded where it is packed
    assert [name for name in watched if "detach" not in name] == [name for name in alone if "detach" not in name]
    assert watched.count("aten::detach") <= alone.count("aten::detach")
