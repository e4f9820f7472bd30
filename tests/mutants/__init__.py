"""Bugs on purpose: `make mutants` tells which test finds which, and fails if none does."""

from __future__ import annotations
