"""A gateway on a store in memory: ``serve_memory.py SECRET [name=value ...]``; tells its URL.

The settings are those of `Limits`, durations in seconds; ``port``, ``certificate``, ``proxies``
and ``sqs_unsigned``.
"""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from typing import Any

from cassieq_spark.cli.gateway import log_as_json
from cassieq_spark.client import AsyncClient
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.gateway import Limits, Serving, serve
from cassieq_spark.store.memory import MemoryStore

_WHERE = ("port", "certificate", "sqs_unsigned")
_DURATIONS = {"wait", "skew", "linger", "head_time", "purge_pause"}


def main(secret: str, *settings: str) -> None:
    pairs = (setting.split("=") for setting in settings)
    given: dict[str, Any] = {
        name: timedelta(seconds=float(value)) if name in _DURATIONS else _read(value)
        for name, value in pairs
    }
    where: dict[str, Any] = {name: given.pop(name) for name in _WHERE if name in given}
    if "proxies" in given:
        where["proxies"] = given.pop("proxies").split(",")
    log_as_json(logging.INFO)
    store = MemoryStore()
    serving = Serving(
        **({"port": 0} | where),
        origins=("https://pages.example",),
        limits=Limits(**given),
        on_start=_tell,
        sqs=True,
    )
    serve(AsyncClient.from_store(store, threads=16), Accounts(store, Secrets((secret,))), serving)


def _read(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _tell(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
