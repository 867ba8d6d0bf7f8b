"""Redaction: what is left out of texts, records, traces and snapshots, and what stays."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.redaction import NOTHING_REDACTED, Redaction, RedactionFilter, redacted_lines

REDACTION = Redaction(
    {"/home/ada": "~", "/home/ada/project": ".", "/data/résumé": "~"},
    {"node7": "<host>", "s3cret-token": "<argument>", "ada": "<user>"},
    users=["ada", "root"],
)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("held at /home/ada/project/train.py:12", "held at ./train.py:12"),
        ("/home/ada/project", "."),
        ("/home/ada/project2/x.py", "~/project2/x.py"),
        ("/home/adam/deep/x.py", "…/deep/x.py"),
        ("cannot write to /home/ada/my data/run", "cannot write to ~/my data/run"),
        ("/scratch/ada/x.py", "…/<user>/x.py"),
        ("/mnt/root/models/x.py", "…/models/x.py"),
        ("root mean square", "root mean square"),
        ("on node7: ok", "on <host>: ok"),
        ("node71 node7-b", "node71 node7-b"),
        ("load s3cret-token", "load <argument>"),
        ("list cache['alice@example.org'][0] in train()", "list cache[…][0] in train()"),
        ('cache["x"]', "cache[…]"),
        ("2 GiB/step and memory/allocated", "2 GiB/step and memory/allocated"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("/usr/lib/x86_64/libc.so.6", "/usr/lib/x86_64/libc.so.6"),
    ],
)
def test_texts(text: str, redacted: str) -> None:
    assert REDACTION.text(text) == redacted
    assert REDACTION.text(redacted) == redacted, "twice is the same as once"


@pytest.mark.parametrize(
    "path",
    [
        "/home/ada/project/code/train.py",
        "/data/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py",
        "/data/venv/lib/python3.11/site-packages/einops/einops.py",
        "/data/python/lib/python3.11/threading.py",
        "/data/src/tbmem/runtime/monitor.py",
        "/tmp/torchinductor_ada/ab/cdef.py",
        "/tmp/ipykernel_12/345.py",
        "/opt/conda/bin/torchrun",
    ],
)
def test_whose_a_file_is_stays_known(path: str) -> None:
    assert owner_of(REDACTION.text(path)) is owner_of(path)
    assert "ada" not in REDACTION.text(path)


def test_a_relative_file_is_not_taken_for_one_of_pythons() -> None:
    assert owner_of(REDACTION.text("/home/ada/project/code/train.py")) is Owner.USER


def test_records_of_the_log() -> None:
    # given records with texts inside
    header = {"type": "header", "host": "node7", "pid": 3, "config": {"run": {"logdir": "/home/ada/runs"}}}
    place = {"evidence": {"line": {"file": "/home/ada/project/a.py", "line": 3}}, "first_step": 1, "last_step": 2}
    finding = Finding(
        kind=FindingKind.LEAK,
        severity=Severity.INFO,
        device="cpu",
        message="cache['ada']",
        **place,  # type: ignore[arg-type]
    )

    # then the values are redacted, and keys and numbers stay
    assert REDACTION.record(header) == {**header, "host": "<host>", "config": {"run": {"logdir": "~/runs"}}}
    redacted = REDACTION.record(finding)
    assert redacted.message == "cache[…]"
    assert redacted.evidence == {"line": {"file": "./a.py", "line": 3}}


def test_a_trace_stays_json_with_its_keys() -> None:
    # given events as kineto writes them, with a key of the host's name
    events = [
        {"name": "load s3cret-token", "node7": "node7", "args": {"Concrete Inputs": ["", "'s3 \" ]'", "[1, 2]"]}},
        {"name": "/home/ada/project/a.py(3): train", "ts": 12.5, "args": {"Input Dims": [[1, 2], []]}},
        {"traceName": "/data/résumé/x.json"},
    ]
    text = json.dumps(events, indent=1)

    # when it is redacted
    redacted = json.loads(REDACTION.trace(text.encode()))

    # then
    assert redacted == [
        {"name": "load <argument>", "node7": "<host>", "args": {"Concrete Inputs": []}},
        {"name": "./a.py(3): train", "ts": 12.5, "args": {"Input Dims": [[1, 2], []]}},
        {"traceName": "~/x.json"},
    ]


def test_a_trace_that_is_no_utf8_keeps_its_bytes() -> None:
    assert REDACTION.trace(b'{"name": "\xff node7"}') == b'{"name": "\xff <host>"}'


def test_a_snapshots_stacks_whose_lists_are_shared() -> None:
    # given a stack that a block and an event share, as torch returns it
    frames = [{"filename": "/home/ada/project/a.py", "line": 3, "name": "train"}]
    snapshot = {
        "segments": [{"blocks": [{"frames": frames}, {"history": [{"frames": [{"filename": "/home/ada/b.py"}]}]}]}],
        "device_traces": [[{"action": "alloc", "frames": frames}, {"action": "free"}]],
    }

    # when
    REDACTION.snapshot(snapshot)

    # then each file is redacted
    assert frames == [{"filename": "./a.py", "line": 3, "name": "train"}]
    assert "ada" not in str(snapshot)


def test_messages_of_a_logger_and_their_tracebacks() -> None:
    # given an error whose traceback names this file
    redaction = Redaction({__file__.rpartition("/")[0]: "."}, {"node7": "<host>"})
    try:
        raise OSError("no answer of node7")
    except OSError:
        record = logging.LogRecord("tbmem", logging.INFO, "x.py", 1, "on %s", ("node7",), sys.exc_info())

    # when
    RedactionFilter(redaction).filter(record)

    # then
    text = logging.Formatter("%(message)s").format(record)
    assert text.startswith("on <host>\nTraceback")
    assert 'File "./test_redaction.py"' in text
    assert "node7" not in text


def test_a_logger_is_redacted_while_entered(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tests.redaction")

    with redacted_lines(logger, REDACTION):
        logger.warning("on %s", "node7")
    logger.warning("on %s", "node7")

    assert [record.getMessage() for record in caplog.records] == ["on <host>", "on node7"]


def test_what_is_known_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a command line, a host and a home folder
    command = [
        "train.py",
        "--token=hunter2-and-more",
        "--device",
        "cuda",
        "--kind",
        "periodic",
        "--name",
        "first-run",
        "123456",
    ]
    monkeypatch.setattr("sys.argv", command)
    monkeypatch.setattr("socket.gethostname", lambda: "node7.cluster.example")
    monkeypatch.setenv("HOME", "/home/workspace")
    monkeypatch.setenv("LOGNAME", "ada")

    # when
    redaction = Redaction.of_this_process(keep=["first-run"])

    # then secrets go, and words that the records need, the run's name and numbers stay
    text = "hunter2-and-more node7 node7.cluster.example /home/workspace/x first-run cuda periodic 123456"
    assert redaction.text(text) == "<argument> <host> <host> ~/x first-run cuda periodic 123456"

    # and the user, but no word that a home folder is called
    assert redaction.text("a workspace of ada in /mnt/workspace/x") == "a workspace of <user> in …/<user>/x"


def test_nothing_is_redacted_by_default() -> None:
    record = {"type": "header", "host": "node7"}

    assert NOTHING_REDACTED.record(record) is record
    assert NOTHING_REDACTED.text("/home/ada/x['y']") == "/home/ada/x['y']"
    assert NOTHING_REDACTED.trace(b"/home/ada") == b"/home/ada"
