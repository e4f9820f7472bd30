"""How a client reaches Cassandra, as arguments by name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypedDict

from cassieq_spark.arguments import check_many
from cassieq_spark.settings.connection import ConnectionOptions, Consistency, parse_consistency


class Connection(TypedDict, total=False):
    """How to reach Cassandra: the attributes of `ConnectionOptions`, which has the defaults."""

    contact_points: str | Sequence[str]
    port: int
    local_dc: str | None
    username: str | None
    password: str | None
    ssl: bool
    ssl_ca_file: str | None
    ssl_cert_file: str | None
    ssl_key_file: str | None
    ssl_check_hostname: bool
    secure_connect_bundle: str | None
    consistency: Consistency | str
    keyspace: str
    protocol_version: int
    request_timeout: timedelta
    patience: timedelta


def connection_options(given: Connection) -> ConnectionOptions:
    """Read how to reach Cassandra; contact points may be one text, several of them with commas.

    Raises:
        OptionError: One of them is malformed.
    """
    values: dict[str, Any] = {**given}
    points: Any = values.get("contact_points", ())
    if isinstance(points, str):
        values["contact_points"] = tuple(point.strip() for point in points.split(","))
    elif "contact_points" in values:
        values["contact_points"] = tuple(check_many("contact_points", points, "a list of hosts"))
    if isinstance(values.get("consistency"), str):
        values["consistency"] = parse_consistency(values["consistency"])
    return ConnectionOptions(**values)
