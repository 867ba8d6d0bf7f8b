"""What features need that may be missing: optional packages by extra, and versions of torch by feature."""

from __future__ import annotations

import re
import sys
from enum import Enum
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from tbmem.errors import MissingDependencyError


class TorchFeature(Enum):
    """What needs a newer torch than tbmem itself: its name in messages, and the first version that has it."""

    ESTIMATE = ("an estimate (tbmem estimate, tbmem sweep)", "2.9")
    """Fake CUDA tensors with gradients; its figures are compared with measurements from this version on."""
    SAVED_TENSORS = ("naming the tensors that autograd saves (activations)", "2.8")
    """The innermost pair of saved-tensor hooks can be read, so that none of the program's is displaced."""
    ACCELERATOR = ("reading the memory of accelerators other than CUDA, XPU and MPS", "2.9")
    """``torch.accelerator`` with counters."""

    @property
    def missing(self) -> str:
        """Why the installed torch lacks it, in one line; empty if it does not."""
        name, minimum = self.value
        installed = _torch_version()
        if not installed or _numbers(installed) >= _numbers(minimum):
            return ""
        return _too_old(name, "torch", minimum, installed)

    def require(self) -> None:
        """Check that the installed torch has it.

        Raises:
            MissingDependencyError: It is too old.
        """
        if missing := self.missing:
            raise MissingDependencyError(missing)


def require(module: str, *, extra: str, minimum: str = "0", distribution: str | None = None, feature: str = "") -> None:
    """Check that an optional package is installed, and not older than ``minimum``; arguments as for ``missing``.

    Raises:
        MissingDependencyError: It is not installed, or is too old.
    """
    reason = missing(module, extra=extra, minimum=minimum, distribution=distribution, feature=feature)
    if reason:
        raise MissingDependencyError(reason)


def missing(module: str, *, extra: str, minimum: str = "0", distribution: str | None = None, feature: str = "") -> str:
    """Why an optional package cannot be used, in one line; empty if it is installed and not too old.

    Args:
        module: Name by which it is imported.
        extra: The extra of tbmem that installs it.
        minimum: First version that is supported.
        distribution: Its name on the package index, where it is not the module's.
        feature: What needs it, in the message; by default the adapter of the extra's name.
    """
    name = distribution or module
    feature = feature or f"tbmem.integrations.{extra}"
    if not _is_installed(module):
        return f"{feature} needs {name} (tbmem's extra {extra}): pip install {packages_of(extra) or name}"
    try:
        installed = version(name)
    except PackageNotFoundError:
        return ""  # a checkout without metadata: its version is not checked
    return _too_old(feature, name, minimum, installed) if _numbers(installed) < _numbers(minimum) else ""


def packages_of(extra: str, package: str = "tbmem") -> str:
    """What an extra of an installed package installs, as words for pip; empty where that is not known.

    pip can install them also where tbmem itself came from a checkout or a file, so that no index has it.
    """
    try:
        required = requires(package) or ()
    except PackageNotFoundError:
        return ""
    return " ".join(f"'{line.partition(';')[0].strip()}'" for line in required if f'extra == "{extra}"' in line)


def _is_installed(module: str) -> bool:
    """Whether a module can be imported; one whose entry in ``sys.modules`` is ``None`` is blocked."""
    return sys.modules[module] is not None if module in sys.modules else find_spec(module) is not None


def _torch_version() -> str:
    """That of the loaded torch, else of the installed one, without the name of its build; empty if there is none."""
    if (loaded := sys.modules.get("torch")) is not None:
        return str(loaded.__version__).partition("+")[0]
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        return ""


def _too_old(feature: str, name: str, minimum: str, installed: str) -> str:
    return f'{feature} needs {name} {minimum} or newer ({installed} is installed): pip install "{name}>={minimum}"'


def _numbers(text: str) -> list[int]:
    """``'2.6.6rc1'`` as ``[2, 6, 6]``."""
    match = re.match(r"\d+(\.\d+)*", text)
    return [int(part) for part in match[0].split(".")] if match else []
