"""What Python runs first in a process of a rehearsal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tbmem.rehearsal import environment

STARTUP = str(Path(environment.__file__).with_name("startup"))


def first_lines(code: str, path: Path, library: Path) -> list[str]:
    """What Python prints that starts with the device."""
    variables = {**os.environ, "PYTHONPATH": f"{STARTUP}{os.pathsep}{path}", environment.LIBRARY: str(library)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_hidden_sitecustomize_still_runs(built: Path, tmp_path: Path) -> None:
    # given a module of the user's that Python would import at its start, and the device
    (tmp_path / "sitecustomize.py").write_text("print('hidden one')\n", encoding="utf-8")
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0), ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
    # when Python starts, then both have been loaded, and the driver is found by its name
    assert first_lines(code, tmp_path, built / environment.MAIN) == ["hidden one", "0 0"]


def test_what_is_compiled_while_a_program_runs_is_taken_for_compiled(built: Path, tmp_path: Path) -> None:
    # given a program that asks NVRTC for a kernel, as torch does for prod
    code = (
        "import ctypes\n"
        "nvrtc, program, size = ctypes.CDLL('libnvrtc.so.13'), ctypes.c_void_p(), ctypes.c_size_t()\n"
        "nvrtc.nvrtcCreateProgram(ctypes.byref(program), b'x', b'', 0, None, None)\n"
        "print(nvrtc.nvrtcCompileProgram(program, 0, None), nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))\n"
        "print(nvrtc.nvrtcGetCUBIN(program, ctypes.create_string_buffer(size.value)), size.value > 0)\n"
    )
    # then
    assert first_lines(code, tmp_path, built / environment.MAIN) == ["0 0", "0 True"]


def test_nothing_happens_without_the_device(tmp_path: Path) -> None:
    # given a library that is not there, when Python starts, then it is as it always is
    code = "import sys; print([type(each).__name__ for each in sys.meta_path if 'Torch' in type(each).__name__])"
    assert first_lines(code, tmp_path, tmp_path / "missing.so") == ["[]"]


def test_torch_is_followed_once(built: Path, tmp_path: Path) -> None:
    # given a torch of one line, and tbmem out of reach of what is told
    (tmp_path / "torch.py").write_text("loaded = True\n", encoding="utf-8")
    code = (
        "import sys, types; seen = []; module = types.ModuleType('tbmem.rehearsal.process');"
        " module.prepare = lambda: seen.append(sys.modules['torch'].loaded);"
        " sys.modules['tbmem.rehearsal.process'] = module; import torch; import torch; print(seen)"
    )
    # when it is imported, then the rehearsal begins when it is whole
    assert first_lines(code, tmp_path, built / environment.MAIN) == ["[True]"]
