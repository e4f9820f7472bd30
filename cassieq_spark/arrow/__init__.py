"""Messages in Arrow: chunks as they are stored, rows as readers get them, receipts."""

from __future__ import annotations
