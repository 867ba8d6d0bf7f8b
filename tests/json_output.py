"""Validates what a command printed with ``--json`` by the schema that the documentation publishes."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from docs.site.json_schemas import schemas


@cache
def _validators() -> dict[str, Draft202012Validator]:
    return {command: Draft202012Validator(schema) for command, schema in schemas().items()}


def validate(command: str, value: Any) -> None:
    """Check a value against the schema of a command."""
    errors = [f"{error.json_path}: {error.message[:500]}" for error in _validators()[command].iter_errors(value)]
    assert not errors, "\n".join(errors)
