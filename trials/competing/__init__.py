"""Readers of one group that compete: queries of Spark (`__main__`), and clients (`readers`)."""

from __future__ import annotations
