"""Queues by HTTP: the gateway, its accounts, and a client for it."""

from __future__ import annotations

#: The group of requests that name none; the only one that is created by its first request.
DEFAULT_GROUP = "default"

#: How bytes are encoded in JSON and URLs.
TEXT, BASE64 = "text", "base64"
