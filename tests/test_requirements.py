"""What may be missing: optional packages named by their extra, versions of torch by feature."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import tbmem
from tbmem.errors import MissingDependencyError
from tbmem.requirements import TorchFeature, missing, require
from tests.conftest import PROJECT

