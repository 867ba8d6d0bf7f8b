"""The address book, filled by a real training step."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict

import torch

from tbmem.model.address_book import AddressBook
from tbmem.model.category import Category
from tbmem.runtime.profiling.address_recorder import AddressRecorder


def _training() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    return model, torch.optim.AdamW(model.parameters())


def _step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def _bytes(book: AddressBook) -> dict[Category, dict[str, int]]:
    found: dict[Category, dict[str, int]] = defaultdict(dict)
    for note in book.notes():
        found[note.category][note.name] = note.bytes
    return found


def _record(recorder: AddressRecorder, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> AddressBook:
    recorder.open()
    try:
        recorder.begin()
        _step(model, optimizer)
        return recorder.end({"window": 1})
    finally:
        recorder.close()


def test_bytes_and_names_are_the_models_own() -> None:
    # given a watched model and optimizer
    model, optimizer = _training()
    recorder = AddressRecorder()
    recorder.watch(model, optimizer)

    # when a step is recorded
    found = _bytes(_record(recorder, model, optimizer))

    # then parameters and gradients have the model's sizes, and the state twice that and a counter each
    sizes = {name: tensor.nbytes for name, tensor in model.named_parameters()}
    assert found[Category.PARAMETER] == sizes
    assert found[Category.GRADIENT] == sizes
    expected = {f"{name}.{key}": size for name, size in sizes.items() for key in ("exp_avg", "exp_avg_sq")}
    expected |= {f"{name}.step": 4 for name in sizes}
    assert found[Category.OPTIMIZER_STATE] == expected


def test_saved_tensors_have_the_module_that_saved_them_and_are_no_weights() -> None:
    model, optimizer = _training()
    recorder = AddressRecorder()
    recorder.watch(model, optimizer)

    book = _record(recorder, model, optimizer)

    saved = [note for note in book.notes() if note.category is Category.ACTIVATION]
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    assert {note.name for note in saved} <= {"0", "1", "2"}
    assert not weights & {note.address for note in saved}


def test_an_optimizer_that_nobody_gave_is_found_when_it_steps() -> None:
    # given nothing to watch
    model, optimizer = _training()

    # when a step is recorded
    found = _bytes(_record(AddressRecorder(), model, optimizer))

    # then gradients, state and parameters are there under their places in the optimizer
    sizes = [parameter.nbytes for parameter in model.parameters()]
    assert list(found[Category.GRADIENT].values()) == sizes
    assert found[Category.PARAMETER] == {f"group0.param{i}": size for i, size in enumerate(sizes)}
    assert "group0.param0.exp_avg" in found[Category.OPTIMIZER_STATE]


def test_nothing_is_kept_alive() -> None:
    # given a watched model
    model, optimizer = _training()
    recorder = AddressRecorder()
    recorder.watch(model, optimizer)
    seen = weakref.ref(model), weakref.ref(optimizer)

    # when the program lets go of it
    del model, optimizer
    gc.collect()

    # then it is gone, and recording still works
    assert [reference() for reference in seen] == [None, None]
    recorder.begin()
    assert len(recorder.end({})) == 0


def test_an_error_in_noting_does_not_reach_optimizer_step() -> None:
    # given an optimizer whose state cannot be walked
    model, optimizer = _training()
    _step(model, optimizer)
    recorder = AddressRecorder()
    recorder.open()
    recorder.begin()
    optimizer.state[next(model.parameters())] = None

    # when its hook runs
    try:
        recorder._after_optimizer_step(optimizer)

        # then the book has a gap and says so
        optimizer.state.clear()
        assert recorder.end({}).about["gaps"] == 1
    finally:
        recorder.close()


def test_times_are_unix_nanoseconds_in_order() -> None:
    import time

    model, optimizer = _training()
    before = time.time_ns()
    book = _record(AddressRecorder(), model, optimizer)

    times = book.time_ns.tolist()
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= time.time_ns()


def test_names_of_two_models_begin_with_their_variables() -> None:
    # given two models with the same names inside
    generator, generators = _training()
    critic, critics = _training()
    recorder = AddressRecorder()
    recorder.watch(generator, generators)
    recorder.watch(critic, critics)

    # when a step of one of them is recorded
    found = _bytes(_record(recorder, generator, generators))

    # then no name is that of both
    names = {f"{model}.{name}" for model in ("generator", "critic") for name, _ in generator.named_parameters()}
    assert set(found[Category.PARAMETER]) == names
    assert set(found[Category.GRADIENT]) == {name for name in names if name.startswith("generator.")}
    assert {name.partition(".")[0] for name in found[Category.OPTIMIZER_STATE]} == {"generator"}
    assert set(found[Category.ACTIVATION]) <= {"generator.0", "generator.1", "generator.2"}


def test_the_same_model_and_its_parts_are_one_model() -> None:
    # given a model that is watched twice, and a part of it before and after
    model, optimizer = _training()
    head = model[2]
    recorder = AddressRecorder()
    for each in (head, model, model, head):
        recorder.watch(each, optimizer)

    # when a step is recorded
    found = _bytes(_record(recorder, model, optimizer))

    # then the names are the model's own
    assert set(found[Category.PARAMETER]) == {name for name, _ in model.named_parameters()}


def test_parameters_without_a_name_are_told_apart_by_their_optimizers() -> None:
    # given two optimizers of models that nobody watches
    first, second = _training(), _training()
    recorder = AddressRecorder()
    recorder.open()
    recorder.begin()
    # when both step
    _step(*first)
    _step(*second)
    book = recorder.end({})
    recorder.close()

    # then the names of the second begin with its class
    names = set(_bytes(book)[Category.GRADIENT])
    assert {name.partition(".group")[0] for name in names if not name.startswith("group")} == {"AdamW"}
    assert len(names) == 2 * len(list(first[0].parameters()))
