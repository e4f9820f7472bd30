"""Measures the coefficients of the capacity model, and checks what it predicts."""

from __future__ import annotations
