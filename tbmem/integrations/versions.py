"""Checks that a framework is installed in a version that its adapter works with."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType

from tbmem.errors import MissingDependencyError


def require(module: str, *, extra: str, minimum: str, distribution: str | None = None) -> None:
    """Make sure that a framework can be imported.

    Args:
        module: What will be imported, ``'ignite'``.
        extra: The extra of tbmem that installs it.
        minimum: Oldest version that the adapter works with, ``'0.5'``.
        distribution: Name on the package index, where it is not the module's.

    Raises:
        MissingDependencyError: The framework is not installed, or is too old.
    """
    name = distribution or module
    if find_spec(module) is None:
        raise MissingDependencyError(f"tbmem.integrations.{extra} needs {name}: pip install 'tbmem[{extra}]'")
    try:
        installed_version = version(name)
    except PackageNotFoundError:
        return  # a checkout on the path: its version is its owner's business
    if _numbers(installed_version) < _numbers(minimum):
        raise MissingDependencyError(
            f"tbmem.integrations.{extra} needs {name} {minimum} or newer ({installed_version} is installed):"
            f" pip install '{name}>={minimum}'"
        )


def in_use(packages: Mapping[str, str], *, extra: str, minimum: str) -> list[ModuleType]:
    """The modules of a framework that the program uses, where it has several names.

    Raises:
        MissingDependencyError: None is installed, or it is too old.
    """
    loaded = [module for module in packages if module in sys.modules]
    installed = [module for module, package in packages.items() if find_spec(package) is not None]
    chosen = loaded or installed[:1] or list(packages)[:1]
    for module in chosen:
        require(packages[module], extra=extra, minimum=minimum, distribution=packages[module].replace("_", "-"))
    return [import_module(module) for module in chosen]


def version_of(instance: object) -> str:
    """Version of the framework that an object comes from; empty where it does not say."""
    package = sys.modules[type(instance).__module__.partition(".")[0]]
    return str(getattr(package, "__version__", ""))


def _numbers(text: str) -> list[int]:
    """``'2.6.6rc1'`` as ``[2, 6, 6]``."""
    match = re.match(r"\d+(\.\d+)*", text)
    return [int(part) for part in match[0].split(".")] if match else []
