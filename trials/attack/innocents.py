"""Clients of an account that has nothing to do with the attacks, in a process of their own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

from benchmarks.gateway_load import Client, Getter, Putter, load
from trials.attack.stage import Stage

_SLICE_SECONDS = 2.0
_INNOCENT: list[Callable[[], Client]] = [Putter, Getter] * 4


@contextmanager
def innocent(stage: Stage) -> Iterator[Callable[[], list[float]]]:
    """Clients of a third account, in a process of their own; asked, it tells what they waited."""
    account = stage.account()
    account.ask("POST", json={"queueName": "mine", "maxDeliveryCount": 0}).raise_for_status()
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    path = urlsplit(f"{account.queues}/mine").path
    arguments = (theirs, stage.url, path, account.key)
    process = context.Process(target=_be_innocent, args=arguments, daemon=True)
    process.start()

    def seconds() -> list[float]:
        ours.send("tell")
        told: list[float] = ours.recv()
        return told

    try:
        yield seconds
    finally:
        process.kill()
        process.join()


def _be_innocent(pipe: Connection, url: str, path: str, key: str) -> None:
    seconds: list[float] = []
    while True:
        told, _ = load(url, path, key, _INNOCENT, _SLICE_SECONDS)
        seconds += told.seconds
        if pipe.poll():
            pipe.recv()
            pipe.send(seconds)
            seconds = []
