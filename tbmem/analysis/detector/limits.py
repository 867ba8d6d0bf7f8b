"""Numbers that several rules share; thresholds that a user may set are ``config.schema.PatternsConfig``."""

from __future__ import annotations

ENOUGH_STEPS = 8
"""Judged steps, or repetitions of a piece of work, below which there is no verdict."""
