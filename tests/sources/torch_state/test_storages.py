from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from tbmem.model.address_book import StorageNote
from tbmem.model.category import Category
from tbmem.sources.program import tracked_objects
from tbmem.sources.torch_state.storages import (
    gradient_notes,
    model_notes,
    model_of,
    optimizer_parameters,
    optimizer_state_notes,
    tensor_notes,
)


def _notes(tensor: torch.Tensor) -> list[StorageNote]:
    return list(tensor_notes(tensor, Category.INPUT, "x"))


def _places(notes: Iterable[StorageNote]) -> list[tuple[int, int]]:
    return [(note.address, note.bytes) for note in notes]


def _storages(*tensors: torch.Tensor) -> list[tuple[int, int]]:
    return [(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()) for tensor in tensors]


def test_a_tensor_is_one_note() -> None:
    # given
    tensor = torch.ones(3, 4)
    before = time.time_ns()
    # when
    (note,) = _notes(tensor)
    # then
    assert note[1:] == ("cpu", tensor.data_ptr(), 48, Category.INPUT, "x")
    assert before <= note.time_ns <= time.time_ns()


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[2:],
        lambda t: t.t(),
        lambda t: t.view(-1)[5:7],
        lambda t: t.expand(2, 4, 8),
        lambda t: t.detach(),
        lambda t: t.view(torch.uint8),
    ],
    ids=["slice", "transpose", "middle", "expand", "detach", "other dtype"],
)
def test_a_view_stands_on_its_bases_storage(view: Any) -> None:
    # given
    base = torch.ones(4, 8)
    # then
    assert _places(_notes(view(base))) == _storages(base)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_tensor_without_memory_has_no_note(device: str) -> None:
    # given
    tensor = torch.empty(0 if device == "cpu" else 8, device=device)
    # then
    assert _notes(tensor) == []


def test_a_fake_tensor_has_no_note_and_prints_no_warning() -> None:
    # given what torch.compile traces with, and saves for backward
    with FakeTensorMode():
        fake = torch.empty(8, device="cuda")
    # then
    assert _notes(fake) == []


def test_a_freed_storage_has_no_note() -> None:
    # given what FSDP does to a sharded parameter
    tensor = torch.ones(8)
    tensor.untyped_storage().resize_(0)
    # then
    assert _notes(tensor) == []


def test_a_coordinate_tensor_is_its_indices_and_values() -> None:
    # given
    tensor = torch.eye(5).to_sparse_coo()
    # then
    assert _places(_notes(tensor)) == _storages(tensor._indices(), tensor._values())


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_bsr])
def test_row_compressed_layouts(layout: torch.layout) -> None:
    # given
    blocks = {"blocksize": (2, 2)} if layout is torch.sparse_bsr else {}
    tensor = torch.eye(4).to_sparse(layout=layout, **blocks)
    # then
    assert _places(_notes(tensor)) == _storages(tensor.crow_indices(), tensor.col_indices(), tensor.values())


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_csc, torch.sparse_bsc])
def test_column_compressed_layouts(layout: torch.layout) -> None:
    # given
    blocks = {"blocksize": (2, 2)} if layout is torch.sparse_bsc else {}
    tensor = torch.eye(4).to_sparse(layout=layout, **blocks)
    # then
    assert _places(_notes(tensor)) == _storages(tensor.ccol_indices(), tensor.row_indices(), tensor.values())


def test_a_wrapper_is_the_tensors_inside() -> None:
    # given
    inner = torch.ones(3), torch.zeros(3)
    # then
    assert _places(_notes(TwoTensor(*inner))) == _storages(*inner)


def test_a_wrapper_in_a_wrapper_is_the_tensors_inside() -> None:
    # given
    inner = [torch.full((3,), float(n)) for n in range(4)]
    # when
    nested = TwoTensor(TwoTensor(*inner[:2]), TwoTensor(*inner[2:]))
    # then
    assert _places(_notes(nested)) == _storages(*inner)


def test_a_plain_subclass_is_a_tensor() -> None:
    # given
    parameter = nn.Parameter(torch.ones(3))
    # then
    assert _places(_notes(parameter)) == _storages(parameter)


def test_a_tensor_that_does_not_let_itself_be_looked_at_is_passed_over() -> None:
    # given
    opaque = torch.ones(4, 4).to_mkldnn() if torch.backends.mkldnn.is_available() else torch.empty(0)
    # then
    assert _notes(opaque) == []


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2, bias=False))


def test_a_model_is_its_parameters_and_buffers(model: nn.Sequential) -> None:
    # when
    notes = list(model_notes(model))
    # then
    named = {note.name: (note.address, note.bytes, note.category) for note in notes}
    expected = {name: (*_storages(p)[0], Category.PARAMETER) for name, p in model.named_parameters()}
    expected |= {name: (*_storages(b)[0], Category.BUFFER) for name, b in model.named_buffers()}
    assert named == expected
    assert "1.running_mean" in named


def test_a_tied_weight_is_noted_once_by_its_first_name() -> None:
    # given
    model = nn.ModuleDict({"tokens": nn.Embedding(10, 4), "head": nn.Linear(4, 10, bias=False)})
    model["head"].weight = model["tokens"].weight
    # when
    notes = list(model_notes(model))
    # then
    assert [note.name for note in notes] == ["tokens.weight"]


def test_a_model_on_the_meta_device_has_no_notes() -> None:
    assert list(model_notes(nn.Linear(4, 4, device="meta"))) == []


def test_gradients_are_named_after_their_parameters(model: nn.Sequential) -> None:
    # given
    before = list(gradient_notes(model.named_parameters()))
    # when
    model(torch.ones(3, 4)).sum().backward()
    notes = list(gradient_notes(model.named_parameters()))
    # then
    gradients = {name: _storages(p.grad)[0] for name, p in model.named_parameters() if p.grad is not None}
    assert before == []
    assert {note.name: (note.address, note.bytes) for note in notes} == gradients
    assert {note.category for note in notes} == {Category.GRADIENT}
    assert len(notes) == 5


def test_a_sparse_gradient_is_its_indices_and_values() -> None:
    # given
    embedding = nn.Embedding(100, 4, sparse=True)
    # when
    embedding(torch.tensor([1, 5, 5])).sum().backward()
    notes = list(gradient_notes(embedding.named_parameters()))
    # then
    gradient = embedding.weight.grad
    assert gradient is not None
    assert _places(notes) == _storages(gradient._indices(), gradient._values())


def test_looking_at_what_is_no_leaf_warns_of_nothing() -> None:
    # given a computed tensor: asking for its .grad would print a warning, which is an error here
    computed = torch.ones(3, requires_grad=True) * 2
    # then
    assert list(gradient_notes([("computed", computed)])) == []


def test_parameters_of_an_optimizer_have_names_or_places() -> None:
    # given
    named, first, second = (nn.Parameter(torch.ones(2)) for _ in range(3))
    optimizer = torch.optim.SGD([{"params": [named]}, {"params": [first, second]}], lr=0.1)
    # when
    found = list(optimizer_parameters(optimizer, {id(named): "head.weight"}))
    # then
    assert [name for name, _ in found] == ["head.weight", "group1.param0", "group1.param1"]
    assert [id(parameter) for _, parameter in found] == [id(named), id(first), id(second)]


def _train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.linspace(-1, 1, 24).view(6, 4)).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]


def _names(model: nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (lambda p: torch.optim.AdamW(p, lr=0.1), {"step", "exp_avg", "exp_avg_sq"}),
        (lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True), {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), {"momentum_buffer"}),
        (lambda p: torch.optim.SGD(p, lr=0.1), set()),
    ],
    ids=["AdamW", "AMSGrad", "momentum", "plain SGD"],
)
def test_optimizer_state_has_torchs_own_names_and_sizes(model: nn.Sequential, make: Any, keys: set[str]) -> None:
    # given
    optimizer = make(model.parameters())
    _train(model, optimizer)
    # when
    notes = list(optimizer_state_notes(optimizer, _names(model)))
    # then
    expected = {}
    for name, parameter in model.named_parameters():
        for key in keys:
            state = optimizer.state[parameter][key]
            expected[f"{name}.{key}"] = (state.data_ptr(), state.numel() * state.element_size())
    assert {note.name: (note.address, note.bytes) for note in notes} == expected
    assert {note.category for note in notes} <= {Category.OPTIMIZER_STATE}


def test_the_state_of_lbfgs_is_found_in_its_lists(model: nn.Sequential) -> None:
    # given
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=4, history_size=3)
    _train(model, optimizer)
    # when
    notes = list(optimizer_state_notes(optimizer, _names(model)))
    # then everything hangs on the first parameter
    state = optimizer.state[optimizer.param_groups[0]["params"][0]]
    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    for key in ("old_dirs", "old_stps", "ro", "al"):
        lists = enumerate(state.get(key) or [])
        tensors |= {f"{key}.{i}": each for i, each in lists if isinstance(each, torch.Tensor)}
    expected = {f"0.weight.{key}": _storages(tensor)[0] for key, tensor in tensors.items()}
    assert {note.name: (note.address, note.bytes) for note in notes} == expected
    assert {"0.weight.d", "0.weight.old_dirs.0", "0.weight.old_stps.0"} <= expected.keys()


def test_state_in_a_mapping_is_found() -> None:
    # given an optimizer that keeps factors by name (Shampoo)
    parameter = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    factor = torch.eye(4)
    optimizer.state[parameter] = {"preconditioner": {"left": factor, "rank": 3, "blocks": [torch.ones(2)]}}
    # when
    notes = list(optimizer_state_notes(optimizer, {}))
    # then
    assert [(note.name, note.bytes) for note in notes] == [
        ("group0.param0.preconditioner.left", 64),
        ("group0.param0.preconditioner.blocks.0", 8),
    ]


def test_looking_at_state_adds_none(model: nn.Sequential) -> None:
    # given an optimizer that has not stepped yet: its state makes entries on access
    optimizer = torch.optim.AdamW(model.parameters())
    # when
    notes = list(optimizer_state_notes(optimizer, {}))
    # then
    assert notes == []
    assert len(optimizer.state) == 0


def test_the_outermost_module_with_most_of_the_parameters() -> None:
    # given a model, another one that shares a layer with it, and one that has nothing to do with it
    shared = torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(shared, torch.nn.Sequential(torch.nn.Linear(4, 2)))
    others = [torch.nn.Sequential(shared), torch.nn.Linear(4, 4)]

    found = model_of(torch.optim.SGD(model.parameters(), lr=0.1))

    assert found is model
    assert len(others) == 2


def test_a_scripts_global_model_is_found_without_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a script whose model is a global variable, and a wrapped one beside it that is another model
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "net = torch.nn.Linear(4, 4)\n"
        "model = torch.nn.Sequential(net)\n"
        "other = torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "found = look(torch.optim.SGD(net.parameters(), lr=0.1))\n"
    )
    searches: list[type] = []
    monkeypatch.setattr(tracked_objects, "live_objects", lambda *bases: searches.extend(bases) or [[]])
    # when
    variables: dict[str, Any] = {"look": model_of}
    exec(compile(script.read_text(), str(script), "exec"), variables)
    # then it is the outermost one
    assert variables["found"] is variables["model"]
    assert searches == []


def test_a_global_module_with_a_part_of_the_parameters_is_not_taken_for_the_model(tmp_path: Path) -> None:
    # given a script whose model is a local variable of a function, and a part of it a global one
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "backbone = torch.nn.Linear(4, 4)\n"
        "def main():\n"
        "    model = torch.nn.Sequential(backbone, torch.nn.Linear(4, 2))\n"
        "    return model, look(torch.optim.SGD(model.parameters(), lr=0.1))\n"
        "model, found = main()\n"
    )
    variables: dict[str, Any] = {"look": model_of}
    # when
    exec(compile(script.read_text(), str(script), "exec"), variables)
    # then
    assert variables["found"] is variables["model"]


def test_parameters_without_a_module() -> None:
    assert model_of(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)) is None
