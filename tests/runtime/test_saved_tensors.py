"""Noting what autograd saves, and not being noticed while doing so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tbmem.model.address_book import StorageNote
from tbmem.model.category import Category
from tbmem.runtime.saved_tensors import SavedTensorWatch


@contextmanager
def _watching(names: dict[int, str] | None = None) -> Iterator[list[StorageNote]]:
    notes: list[StorageNote] = []
    watch = SavedTensorWatch(notes.append, names or {})
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


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
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
    watch = SavedTensorWatch(notes.append, {})
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

    watch = SavedTensorWatch(refuses, {})
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
