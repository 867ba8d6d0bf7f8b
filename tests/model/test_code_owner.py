"""Whose a file is, on this machine and on others."""

from __future__ import annotations

import json
import sysconfig

import pytest
import torch

import tbmem
import tbmem.demo.training
from tbmem.model.code_owner import Owner, owner_of


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("train.py", Owner.USER),
        ("transformers/models/llama/modeling_llama.py", Owner.INSTALLED),
        ("/home/u/transformers/train.py", Owner.USER),
        ("/home/u/project/train.py", Owner.USER),
        ("/home/u/torch/train.py", Owner.USER),
        ("/home/u/bin/train.py", Owner.USER),
        ("/home/u/random/train.py", Owner.USER),
        ("C:\\work\\train.py", Owner.USER),
        ("<ipython-input-3-0123456789ab>", Owner.USER),
        ("/tmp/ipykernel_12/3456789.py", Owner.USER),
        ("<stdin>", Owner.USER),
        (tbmem.demo.training.__file__, Owner.USER),
        ("/venv/lib/python3.11/site-packages/transformers/trainer.py", Owner.INSTALLED),
        ("/usr/lib/python3/dist-packages/yaml/loader.py", Owner.INSTALLED),
        ("/usr/local/bin/torchrun", Owner.INSTALLED),
        (torch.nn.functional.__file__, Owner.TORCH),
        ("torch/nn/modules/module.py", Owner.TORCH),
        ("/opt/pytorch/torch/nn/modules/module.py", Owner.TORCH),
        ("/tmp/torchinductor_me/ab/cab.py", Owner.TORCH),
        (tbmem.__file__, Owner.TBMEM),
        ("/elsewhere/tbmem/runtime/callback.py", Owner.TBMEM),
        (json.__file__, Owner.PYTHON),
        ("contextlib.py", Owner.PYTHON),
        ("json/decoder.py", Owner.PYTHON),
        ("C:\\Python311\\Lib\\contextlib.py", Owner.PYTHON),
        ("<frozen importlib._bootstrap>", Owner.PYTHON),
        ("<string>", Owner.PYTHON),
        ("<eval_with_key>.3", Owner.PYTHON),
        ("subclass_codegen.py:codegen(compiled_function)", Owner.PYTHON),
        ("", Owner.NATIVE),
        ("??", Owner.NATIVE),
        ("../aten/src/ATen/native/Linear.cpp", Owner.NATIVE),
        ("/lib/x86_64-linux-gnu/libc.so.6", Owner.NATIVE),
    ],
)
def test_whose_a_file_is(file: str, owner: Owner) -> None:
    assert owner_of(file) is owner


def test_folders_that_are_known_to_be_a_librarys() -> None:
    assert owner_of("/strange/place/x.py") is Owner.USER
    assert owner_of("/strange/place/x.py", ("/strange/place/",)) is Owner.INSTALLED
    assert owner_of(f"{sysconfig.get_path('purelib')}/anything.py") is Owner.INSTALLED
