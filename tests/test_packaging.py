"""What is released: the content of sdist and wheel, the workflows and the container that are built of them."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import PROJECT

WORKFLOWS = PROJECT / ".github" / "workflows"
NOT_COPIED = (".git", ".venv*", "*.egg-info", "build", "dist", "runs", "results", "__pycache__", ".*_cache")
"""Not part of the project, in its folder: what git ignores."""
NOT_IN_WHEEL = (".cpp", ".h", ".js", ".css", ".yaml")
"""Files of the package other than modules: setuptools leaves out those that pyproject.toml does not name."""

REPOSITORY = {
    "GITHUB_SERVER_URL": "https://code.example",
    "GITHUB_REPOSITORY": "someone/tbmem",
    "GITHUB_REF_NAME": "v0.2.0",
}
"""The repository that releases it, as the workflow knows it."""


class Built:
    """sdist and wheel, the wheel built from the sdist."""

    def __init__(self, tree: Path) -> None:
        words = [sys.executable, "-m", "build", "--no-isolation", str(tree)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        (sdist,) = (tree / "dist").glob("*.tar.gz")
        (wheel,) = (tree / "dist").glob("*.whl")
        with tarfile.open(sdist) as archive:
            self.sdist = {name.partition("/")[2] for name in archive.getnames()}
        with zipfile.ZipFile(wheel) as files:
            self.wheel = set(files.namelist())
            (metadata,) = (name for name in self.wheel if name.endswith(".dist-info/METADATA"))
            self.metadata: Message = message_from_bytes(files.read(metadata))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("sources") / "tbmem"
    shutil.copytree(PROJECT, copy, symlinks=True, ignore=_ignored)
    (step,) = (each for each in _workflow("release")["jobs"]["build"]["steps"] if "URLs" in each.get("name", ""))
    environment = {**os.environ, **REPOSITORY}
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=copy, env=environment, check=True)
    return copy


def _ignored(folder: str, names: list[str]) -> set[str]:
    patterns = NOT_COPIED if Path(folder) == PROJECT else ("__pycache__",)
    return {name for pattern in patterns for name in fnmatch.filter(names, pattern)}


@pytest.fixture(scope="module")
def built(tree: Path) -> Built:
    return Built(tree)


@pytest.mark.slow
def test_an_sdist_has_all_that_the_tests_need(built: Built) -> None:
    for folder, pattern in (
        ("tests", "*.py"),
        ("docs", "*.*"),
        ("configs", "*.yaml"),
        ("examples", "*.py"),
        ("benchmarks", "*.py"),
        (".github", "*.yml"),
    ):
        files = [path for path in (PROJECT / folder).rglob(pattern) if path.is_file() and path.suffix != ".pyc"]
        missing = {path.relative_to(PROJECT).as_posix() for path in files} - built.sdist
        assert files, folder
        assert not missing, sorted(missing)
    assert {"tests/conftest.py", ".ci/run", "Makefile", "constraints.txt", "Dockerfile", ".dockerignore"} <= built.sdist
    assert {"README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "LICENSE"} <= built.sdist


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_package_and_nothing_else(built: Built) -> None:
    modules = {path.relative_to(PROJECT).as_posix() for path in (PROJECT / "tbmem").rglob("*.py")}
    data = {
        path.relative_to(PROJECT).as_posix()
        for suffix in NOT_IN_WHEEL
        for path in (PROJECT / "tbmem").rglob(f"*{suffix}")
    }
    presets = {f"tbmem/config/presets/{path.name}" for path in (PROJECT / "configs").glob("*.yaml")}
    content = {name for name in built.wheel if ".dist-info/" not in name}

    assert content == modules | data | presets | {"tbmem/py.typed"}


@pytest.mark.slow
def test_a_wheel_needs_no_more_than_every_run_does(built: Built) -> None:
    needed = built.metadata.get_all("Requires-Dist", [])
    always = {re.split(r"[^\w-]", line)[0].lower() for line in needed if "extra ==" not in line}
    # these stay, whatever else becomes an extra
    assert {"torch", "tensorboard", "torch-tb-profiler", "omegaconf", "psutil"} <= always
    assert "matplotlib" not in always
    extras = built.metadata.get_all("Provides-Extra", [])
    assert "plots" in extras
    # no torch that anybody has is too old for pip
    (torch,) = (line for line in needed if re.match(r"torch\b(?!-)", line))
    assert torch == "torch>=2.4"


@pytest.mark.slow
def test_a_release_has_the_urls_of_its_repository(built: Built) -> None:
    assert built.metadata.get_all("Project-URL", []) == [
        "Source, https://code.example/someone/tbmem",
        "Documentation, https://code.example/someone/tbmem/blob/v0.2.0/docs/guide.md",
        "Changelog, https://code.example/someone/tbmem/blob/v0.2.0/CHANGELOG.md",
        "Issues, https://code.example/someone/tbmem/issues",
    ]


def test_workflows_are_valid() -> None:
    pytest.importorskip("check_jsonschema")
    files = [str(path) for path in sorted(WORKFLOWS.glob("*.yml"))]
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *files]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_matrix_has_what_the_makefile_tests() -> None:
    # given
    matrix = _workflow("ci")["jobs"]["versions"]["strategy"]["matrix"]
    makefile = (PROJECT / "Makefile").read_text()
    tested = re.search(r"^TORCH_VERSIONS \?= (.*)$", makefile, re.MULTILINE)
    pinned = re.search(r"^torch==(.*)$", (PROJECT / "constraints.txt").read_text(), re.MULTILINE)
    assert tested is not None
    assert pinned is not None
    # then
    assert set(matrix["torch"]) == {*tested[1].split(), pinned[1]}
    assert matrix["python"] == ["3.10", "3.11", "3.12", "3.13"]


@pytest.mark.parametrize("name", ["ci", "release"])
def test_what_workflows_call_exists(name: str) -> None:
    makefile = (PROJECT / "Makefile").read_text()
    groups = (PROJECT / "pyproject.toml").read_text().partition("[dependency-groups]")[2]
    for job in _workflow(name)["jobs"].values():
        for command in (step["run"] for step in job.get("steps", ()) if "run" in step):
            for target in re.findall(r"\bmake ([\w-]+)", command):
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), command
            for group in re.findall(r"--group (\S+)", command):
                assert f"\n{group} = [" in groups, command
        if "uses" in job:
            assert (PROJECT / job["uses"]).is_file()


def test_a_release_is_published_by_a_tag_only_after_the_tests() -> None:
    release = _workflow("release")
    # YAML 1.1 reads the key `on` as true
    assert release[True] == {"push": {"tags": ["v*"]}}
    publish = release["jobs"]["publish"]
    assert set(publish["needs"]) == {"test", "build"}
    assert publish["permissions"] == {"id-token": "write"}
    # the token may be asked for by that job alone
    assert release["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for name, job in release["jobs"].items() if name != "publish")


def test_the_container_is_built_of_files_that_exist() -> None:
    lines = (PROJECT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    ignored = (PROJECT / ".dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    # given the files that it copies, all that a wheel is built of among them
    for name in sent:
        assert (PROJECT / name).exists(), name
    assert {"LICENSE", "README.md", "pyproject.toml", "configs", "tbmem"} <= sent
    copied = {line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line} - {"."}
    assert copied <= sent
    # then its groups and extras exist, and it does not run as root
    project = (PROJECT / "pyproject.toml").read_text()
    for name in re.findall(r"--group (\S+)|whl\)\[(\w+)\]", "\n".join(lines)):
        assert f"\n{''.join(name)} = [" in project
    instructions = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert "USER user" in lines
    assert instructions.index("ENTRYPOINT") > instructions.index("USER")


@pytest.mark.slow
def test_a_wheel_can_be_built_of_what_the_container_is_sent(tree: Path, tmp_path: Path) -> None:
    # given the build context
    ignored = (PROJECT / ".dockerignore").read_text().splitlines()
    for name in (line.removeprefix("!") for line in ignored if line.startswith("!")):
        source = tree / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, symlinks=True)
        else:
            shutil.copy(source, tmp_path / name)
    # when
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    # then
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        assert "tbmem/config/presets/light.yaml" in files.namelist()


def _workflow(name: str) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())
    return content
