"""Queues by HTTP: the gateway, its accounts, and a client for it."""

from __future__ import annotations
