"""Code and settings in the documents are run, and what they name exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tbmem import MemoryCallback
from tbmem.config import load_config
from tbmem.offline.analyze import load_rules
from tbmem.runtime.profiling.schedule import ScheduleState, schedule_at
from tests.conftest import PROJECT

DOCUMENTS = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md"), *(PROJECT / "benchmarks").glob("*.md")])

WORDS = (
    r"\b(?:is|are|was|were) told\b",  # is reported
    r"\btold apart\b",  # distinguished
    r"\bput down to\b",  # attributed to
    r"\btrainings\b|\ba training\b(?! (?:run|step|loop|script|program|process|job|state|data|set))",  # a training run
    r"\bgoes? in\b.*\bcomes? out\b",
    r"\b(?:riddle|staircase|shelf|fairy|beat|beats|look-alikes?)\b",
    r"\bthe street\b",
    r"\bpiles? up\b",  # accumulates
    r"\bwithout a word\b",
    r"\bin Python's sight\b",
)
"""Turns of phrase that PyTorch's and TensorBoard's pages would not use."""


def _blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PROJECT / document).read_text(), flags=re.DOTALL)


def test_the_readmes_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given what the ten lines take for granted
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(batch: torch.Tensor) -> None:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    names: dict[str, Any] = {"model": model, "optimizer": optimizer, "train_step": train_step}
    names["loader"] = [torch.randn(2, 4) for _ in range(13)]

    # when they run in an empty folder
    monkeypatch.chdir(tmp_path)
    (code,) = _blocks("README.md", "python")
    exec(code, names)

    # then there is a run
    assert len(list(tmp_path.glob("runs/*/*.pt.trace.json.gz"))) == 1


def test_the_guides_sum_of_optimizer_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a run of a model with AdamW
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.AdamW(model.parameters())
    with MemoryCallback(run={"logdir": str(tmp_path), "name": "run"}) as memory:
        memory.watch(model, optimizer)
        for _ in range(7):
            model(torch.randn(2, 16)).sum().backward()
            optimizer.step()
            memory.step()
    (book,) = (tmp_path / "run").glob("*.addresses.npz")

    # when the guide's code sums up its address book
    (code,) = _blocks("docs/guide.md", "python")
    capsys.readouterr()
    exec(code.replace("runs/<run>/<worker>.<ns>.addresses.npz", str(book)), {})

    # then it is two moments for every weight and a counter of four bytes for every tensor
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert capsys.readouterr().out.split() == ["cpu", str(2 * weights + 2 * 4)]


def test_the_guides_rules_can_be_used(tmp_path: Path) -> None:
    _section, rules = _blocks("docs/guide.md", "yaml")
    (tmp_path / "rules.yaml").write_text(rules)

    assert [rule.label for rule in load_rules(tmp_path / "rules.yaml").rules[:2]] == ["Vision", "KV cache"]


def test_the_guides_schedule_is_what_it_says() -> None:
    section, _rules = _blocks("docs/guide.md", "yaml")
    config = load_config(yaml.safe_load(section)).profiling

    recorded = [step for step in range(1, 20) if schedule_at(step, config).state is ScheduleState.ACTIVE]

    assert recorded == [4, 5, 6]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


def test_the_architectures_rooms_exist() -> None:
    text = (PROJECT / "ARCHITECTURE.md").read_text()

    rooms = re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|js|yaml))?)`", text)

    assert len(rooms) > 60
    for path in rooms:
        beside = PROJECT / "tbmem" / "present" / path  # `views/`, named beside its package
        assert (PROJECT / "tbmem" / path).exists() or (PROJECT / path).exists() or beside.exists(), path


@pytest.mark.parametrize("pattern", WORDS)
def test_texts_are_plain_technical_english(pattern: str) -> None:
    sources = [path for suffix in ("py", "js", "html") for path in sorted((PROJECT / "tbmem").rglob(f"*.{suffix}"))]
    texts = [path for path in DOCUMENTS if path.name not in ("CHANGELOG.md", "RESULTS.md")]

    hits = [
        f"{path.relative_to(PROJECT)}:{number}: {line.strip()}"
        for path in [*texts, *sources, *sorted((PROJECT / "examples").glob("*.py"))]
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(pattern, line, flags=re.IGNORECASE)
    ]

    assert not hits, "\n".join(hits)
