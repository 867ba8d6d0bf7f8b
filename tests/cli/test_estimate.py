"""The command line: a table or JSON, one line for what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tbmem import UsageError, estimate
from tests.conftest import PROJECT
from tests.json_output import validate


def tbmem(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tbmem", "estimate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=PROJECT)


FACTORY = ("--model", "tests.estimator.factories:layers")


def test_json() -> None:
    done = tbmem(*FACTORY, "--batch", "64", "--gpu", "t4", "--json")

    view = json.loads(done.stdout)
    validate("estimate", view)

    assert done.returncode == 0
    assert view["fit"] == "fits"
    assert view["peak_reserved"] >= view["peak_allocated"] > 0


def test_the_model_without_a_word_before_it_and_a_pipeline_without_a_batch() -> None:
    done = tbmem("gpt2", "--seq", "64", "--pp", "2", "--json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["job"]["batch"] == 4


def test_what_a_factory_makes_keeps_its_type_unless_another_is_asked_for() -> None:
    made, asked = (
        json.loads(tbmem("tests.estimator.factories:half", *words, "--json").stdout)
        for words in ((), ("--dtype", "float32"))
    )

    assert asked["by_category"]["parameter"] == 2 * made["by_category"]["parameter"] > 0


def test_what_does_not_exist_ends_with_two_and_one_line() -> None:
    for arguments in (
        ("--model", "gpt9"),
        (),
        ("gpt2", "--model", "gpt2"),
        (*FACTORY, "--gpu", "abacus"),
        (*FACTORY, "--rank", "3"),
        (*FACTORY, "--tp", "0"),
        (*FACTORY, "--world-size", "0"),
        ("--model", "gpt2", "--seq", "0"),
        (*FACTORY, "--alloc-conf", "x:1"),
        (*FACTORY, "--variants"),
    ):
        done = tbmem(*arguments)

        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
        assert done.stderr.startswith("tbmem estimate: ")


def test_a_config_is_the_model_that_transformers_makes_of_it(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install --group frameworks")
    # given a small GPT-2 in half precision
    config = {
        "model_type": "gpt2",
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 50,
        "torch_dtype": "bfloat16",
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))

    # when it is estimated
    done = tbmem(str(path), "--seq", "32", "--checkpoint", "--no-alternatives")

    # then its class and its type are told
    assert done.returncode == 0
    assert "config.json (GPT2LMHeadModel of transformers " in done.stdout
    assert " parameters in bfloat16, batch " in done.stdout


def test_a_file_that_is_no_config_ends_with_two_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")

    for model in (tmp_path, tmp_path / "config.json", tmp_path / "none.json"):
        done = tbmem(str(model))

        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1


def test_what_would_make_it_fit_follows_the_estimate() -> None:
    # given a job that fits nowhere near
    done = tbmem("gpt2", "--batch", "64", "--seq", "256", "--gpu", "t4", "--dtype", "float16")
    # then the estimate was printed once, and the alternatives after it
    assert done.returncode == 1
    assert done.stdout.count("Peak by category:") == done.stdout.count("With one thing changed") == 1
    assert done.stdout.index("Executed on") < done.stdout.index("With one thing changed")
    assert "the largest that is not tight" in done.stdout


def test_what_does_not_fit_ends_with_one() -> None:
    done = tbmem("--model", "llama-7b", "--dtype", "bfloat16", "--seq", "128", "--gpu", "t4", "--no-alternatives")

    assert done.returncode == 1
    assert "does not fit" in done.stdout


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("mine.py", "model mine.py: add :function; it has make, helper"),
        ("empty.py", "model empty.py: add :function; it has no functions"),
        ("broken.py", "model broken.py: add :function; it cannot be parsed: "),
        ("other.py", "model other.py: there is no file other.py"),
        ("mine.py:mak", "model mine.py:mak: mine has no function mak; it has make, helper"),
    ],
)
def test_a_file_without_its_function_names_those_that_it_has(
    word: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    (tmp_path / "mine.py").write_text("def make():\n    pass\n\n\ndef helper():\n    pass\n\n\ndef _own():\n    pass\n")
    (tmp_path / "empty.py").write_text("print('nothing of it is executed')\n")
    (tmp_path / "broken.py").write_text("def make(:\n")
    monkeypatch.chdir(tmp_path)
    # when
    with pytest.raises(UsageError) as raised:
        estimate(word)
    # then
    assert str(raised.value).startswith(message)


def test_a_value_of_another_type_is_quoted() -> None:
    done = tbmem("--model", "gpt2", "--batch", "4.5")
    assert done.returncode == 2
    assert all(part in done.stderr for part in ("Invalid value", "'4.5'", "'--batch'")), done.stderr
