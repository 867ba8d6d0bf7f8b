"""Prefixes of several models' names."""

from __future__ import annotations

import gc
import sys

import torch

from tbmem.runtime.profiling.model_names import ModelNames


def test_a_single_model_has_no_prefix() -> None:
    # given
    names, model = ModelNames(), torch.nn.Linear(2, 2)
    # when
    names.add(model, sys._getframe())
    # then
    assert names.items() == [("", model)]


def test_models_without_a_variable_have_their_class_and_a_number() -> None:
    # given
    names = ModelNames()
    models = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.nn.Bilinear(2, 2, 2)]
    # when
    names.add(models[0], sys._getframe())
    names.add(models[1], sys._getframe())
    names.add(models[2], sys._getframe())
    # then
    assert [prefix for prefix, _ in names.items()] == ["Linear", "Linear_2", "Bilinear"]


def test_attributes_of_the_calling_object_are_names_as_well() -> None:
    # given
    class Trainer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = torch.nn.Linear(2, 2)
            self.__dict__["teacher"] = torch.nn.Linear(2, 2)  # no part of this module
            self.names = ModelNames()

        def watch(self) -> None:
            self.names.add(self.student, sys._getframe())
            self.names.add(self.__dict__["teacher"], sys._getframe())

    trainer = Trainer()
    # when
    trainer.watch()
    # then
    assert [prefix for prefix, _ in trainer.names.items()] == ["student", "teacher"]


def test_a_model_that_is_gone_makes_no_second_one() -> None:
    # given: one model after the other, as in a cross-validation
    names = ModelNames()
    for _ in range(3):
        model = torch.nn.Linear(2, 2)
        names.add(model, sys._getframe())
        # when / then
        assert [prefix for prefix, _ in names.items()] == [""]
        del model
        gc.collect()


def test_prefixes_stay_when_the_other_model_is_gone() -> None:
    # given
    names, student, teacher = ModelNames(), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    names.add(student, sys._getframe())
    names.add(teacher, sys._getframe())
    # when
    del teacher
    gc.collect()
    # then
    assert names.items() == [("student", student)]
