"""Builds the simulated device: a library that answers for CUDA's driver, runtime and libraries.

It is compiled once for each version of torch and of its source, into a folder of the user's cache. Which functions are
needed is read from torch's own libraries; those that the source does not define succeed and do nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess  # nosec B404  # starts the compiler, without a shell
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tbmem.errors import UsageError

MAIN = "libtbmem_gpu.so"
_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
_SOURCE = Path(__file__).with_name("device")
_ALTERNATIVE = "without it: tbmem estimate"
_COMPILERS = ("c++", "g++", "clang++")
_WANTED = re.compile(r"(cuda|__cuda|cu[A-Z]|cublas|cudnn|cufft|cusolver|cusparse|cupti|nccl|nvml|nvrtc)\w*")
_REAL = re.compile(r"cuFile")  # asks for nothing until it is used, and nothing stands in for it
_BUILD_FACTS = "import torch; print(torch._C._cuda_getArchFlags(), *torch._C._cudnn.getCompileVersion())"
_COMPILE_SECONDS = 300


class TorchBuild(NamedTuple):
    """An installed torch with CUDA."""

    folder: Path
    version: str
    cuda: str
    """As torch names it: ``'13.0'``."""

    @classmethod
    def find(cls) -> TorchBuild:
        """The torch that this Python would import; it is not imported.

        Raises:
            UsageError: There is none, or it is built without CUDA, or this is not Linux.
        """
        if platform.system() != "Linux":
            raise UsageError(f"a rehearsal needs Linux, and this is {platform.system()}; {_ALTERNATIVE}")
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            raise UsageError(f"a rehearsal needs a CUDA build of torch, and no torch is installed; {_ALTERNATIVE}")
        folder = Path(spec.origin).parent
        text = (folder / "version.py").read_text(encoding="utf-8")
        version = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
        cuda = re.search(r"^cuda[^=\n]*= '([\d.]+)'", text, re.MULTILINE)
        if version is None or cuda is None:
            name = version[1] if version is not None else "this one"
            raise UsageError(
                f"a rehearsal needs a CUDA build of torch, and {name} has none; pip install torch from PyPI on Linux"
                f" brings one; {_ALTERNATIVE}"
            )
        if int(cuda[1].split(".")[0]) not in (12, 13):
            raise UsageError(
                f"torch {version[1]} is built for CUDA {cuda[1]}, a rehearsal for 12 and 13; {_ALTERNATIVE}"
            )
        return cls(folder, version[1], cuda[1])


def facades(torch: TorchBuild) -> tuple[str, ...]:
    """Names under which programs open the driver and NVRTC: libraries without code that lead to the main one."""
    return (*_DRIVER, f"libnvrtc.so.{torch.cuda.split('.')[0]}")


def built_library(torch: TorchBuild | None = None) -> Path:
    """The folder of the built library, built now if it is not there yet (some 20 seconds).

    Raises:
        UsageError: There is no CUDA build of torch or no C++ compiler here, or compiling fails.
    """
    torch = torch or TorchBuild.find()
    target = cache_folder() / f"gpu-{torch.version}-{_digest(torch)}"
    if not (target / MAIN).exists():
        compiler = _compiler()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="building-", dir=target.parent) as name:
            _build(Path(name), torch, compiler)
            try:
                os.rename(name, target)
                os.mkdir(name)  # for the context manager to remove
            except OSError:  # another process was faster
                if not (target / MAIN).exists():
                    raise
    return target


def cache_folder() -> Path:
    """Folder for what can be built again: ``$XDG_CACHE_HOME/tbmem``, else ``~/.cache/tbmem``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tbmem"


def _digest(torch: TorchBuild) -> str:
    content = hashlib.sha256(f"{torch} {platform.machine()}".encode())
    for path in _sources():
        content.update(path.read_bytes())
    content.update(Path(__file__).read_bytes())
    return content.hexdigest()[:12]


def _sources() -> list[Path]:
    return sorted(_SOURCE.glob("*.[ch]*"))


def _compiler() -> str:
    named = os.environ.get("CXX")
    for name in (named,) if named else _COMPILERS:
        if found := shutil.which(name):
            return found
    wanted = f"the compiler that CXX names, {named}," if named else "a C++ compiler (c++, g++ or clang++)"
    raise UsageError(f"a rehearsal needs {wanted} and none is installed; Debian: apt-get install g++; {_ALTERNATIVE}")


def _build(folder: Path, torch: TorchBuild, compiler: str) -> None:
    """Compile into a folder: the source, the functions that are missing, and the facades."""
    objects = folder / "objects"
    objects.mkdir()
    flags = ["-std=c++17", "-O1", "-fPIC", "-w", *_definitions(torch)]
    compiling = [
        (path.name, _start([compiler, *flags, "-c", str(path), "-o", str(objects / f"{path.stem}.o")]))
        for path in _sources()
        if path.suffix == ".cpp"
    ]
    _finish(compiling)
    defined = _symbols(compiler, "--defined-only", objects.glob("*.o"))
    wanted = _symbols(compiler, "--undefined-only", (torch.folder / "lib").glob("*.so"), "-D")
    missing = sorted(name for name in wanted - defined if _WANTED.fullmatch(name) and not _REAL.match(name))
    rest = objects / "rest.cpp"
    rest.write_text("".join(f'extern "C" int {name}() {{ return 0; }}\n' for name in missing), encoding="utf-8")
    parts = [str(path) for path in sorted(objects.glob("*.o"))]
    main = folder / MAIN
    link = [compiler, "-shared", "-fPIC", "-w"]
    options = ["-Wl,-Bsymbolic-functions", f"-Wl,-soname,{MAIN}", "-ldl", "-pthread"]
    _finish([(MAIN, _start([*link, *parts, str(rest), "-o", str(main), *options]))])
    for facade in facades(torch):
        # torch's libraries want their functions of a version, which NVIDIA names like the file
        versions = objects / "versions"
        versions.write_text(f"{facade} {{ }};\n", encoding="utf-8")
        options = [f"-Wl,-soname,{facade}", "-Wl,--no-as-needed", str(main), "-Wl,-rpath,$ORIGIN"]
        options += [f"-Wl,--version-script,{versions}"] * (facade not in _DRIVER)
        _finish([(facade, _start([*link, *options, "-o", str(folder / facade)]))])
    shutil.rmtree(objects)
    about = {"torch": torch.version, "cuda": torch.cuda, "answered_with_success": missing}
    (folder / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


def _definitions(torch: TorchBuild) -> list[str]:
    """What the source must know about torch: CUDA's and cuDNN's versions, architectures of its kernels."""
    words = _run([sys.executable, "-c", _BUILD_FACTS], "torch cannot be imported").split()
    architectures = ",".join(
        sorted({match[1] for word in words if (match := re.fullmatch(r"sm_(\d+)a?", word))}, key=int)
    )
    cudnn_major, cudnn_minor, cudnn_patch = (int(word) for word in words[-3:])
    major, minor = (int(part) for part in torch.cuda.split(".")[:2])
    return [
        f"-DCUDA_MAJOR={major}",
        f"-DCUDA_VERSION={major * 1000 + minor * 10}",
        f"-DCUDNN_VERSION={cudnn_major * 10000 + cudnn_minor * 100 + cudnn_patch}",
        f"-DTORCH_ARCHITECTURES={architectures}",
    ]


def _symbols(compiler: str, kind: str, files: Iterable[Path], *options: str) -> set[str]:
    """Names that libraries or objects define or want; ``nm`` comes with every compiler."""
    paths = [str(path) for path in sorted(files)]
    if not paths:
        return set()
    nm = _run([compiler, "-print-prog-name=nm"], "the compiler does not name its nm").strip()
    text = _run([nm, kind, *options, "-P", *paths], "torch's libraries cannot be read")
    return {line.split(" ", 1)[0].split("@", 1)[0] for line in text.splitlines()}


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # nosec B603  # the compiler


def _finish(running: Iterable[tuple[str, subprocess.Popen[str]]]) -> None:
    """Wait for compilers by the name of what they make; UsageError for the first that fails."""
    ended = [(name, process.communicate(timeout=_COMPILE_SECONDS)[1], process.returncode) for name, process in running]
    for name, errors, code in ended:
        if code:
            reason = next(iter(errors.strip().splitlines()), "no reason is given")
            raise UsageError(f"the simulated device cannot be built: {name}: {reason}; {_ALTERNATIVE}")


def _run(command: list[str], failure: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # nosec B603  # the compiler
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason is given"])[-1]
        raise UsageError(f"a rehearsal: {failure}: {reason}; {_ALTERNATIVE}")
    return done.stdout
