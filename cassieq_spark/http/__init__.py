"""Queues over HTTP: the gateway, its accounts, and a client for the gateway."""

from __future__ import annotations

#: The group of requests that name no group; the only group that its first request creates.
DEFAULT_GROUP = "default"

#: The encodings of bytes in JSON and URLs.
TEXT, BASE64 = "text", "base64"
