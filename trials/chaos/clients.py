"""The clients of a chaos run: scribes, which put messages, and clerks, which receive all of them.

A scribe puts numbered messages with keys and unique ids. It repeats each put whose answer it has
lost, or may have lost as it was killed; and now and then one that was answered, or one that the
other scribe has begun. Clerks share a group. Each processes the messages of a receive in order,
acks most of them, and releases, extends or forgets some. Now and then a clerk kills itself, or
stands still for longer than a lease. What they tell is in the table of `client_checker`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from uuid import uuid4

from cassieq_spark import Client, Message, NewMessage
from cassieq_spark.errors import StoreError
from trials.chaos import checker
from trials.chaos.client_checker import MARGIN_SECONDS, name_of, sent_by
from trials.chaos.records import Notebook, row_of

#: Fewer than there are keys, so that a put has no two messages of one key.
_MOST_PUT = 8
_PUT_EVERY = (0.0, 5.0)
#: The shares of puts that are repeated, and that are those of another scribe.
_REPEATED, _ECHOED = 0.2, 0.2
#: Well within the window: a put takes a while if nodes fail.
_REPEAT_WITHIN = 60.0
#: Few, so that a receive finds enough in one or two partitions.
_MOST_RECEIVED = 12
#: Once the faults are over, each receive is as large, and its lease so many times as long.
_MOST_DRAINED, _LONGER = 300, 6
_RECEIVE_EVERY = (0.0, 2.0)
_WAIT = timedelta(seconds=2)
#: The share of receives that are repeated under their name if they fail.
_NAMED = 0.5
_TRIES = 5
#: The shares of messages that are released, or forgotten, with all that follows of their key.
_RELEASED, _FORGOTTEN = 0.04, 0.02
_MOST_DELAY_SECONDS = 3.0
#: The share of receives whose messages are extended, then held for a while.
_EXTENDED = 0.1
_EXTENSION = timedelta(seconds=25)
_MOST_HELD_SECONDS = 20.0
#: At three points of each receive: the share of deaths, and of standing still.
_DEATHS, _STANDSTILLS = 0.005, 0.01
_STILL_SECONDS = (15.0, 35.0)
_FAILED_SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["scribe", "clerk"])
    parser.add_argument("--hosts", required=True, help="contact points")
    parser.add_argument("--queue", required=True)
    parser.add_argument("--group", help="of a clerk")
    parser.add_argument("--lease", type=float, help="of a clerk, in seconds")
    parser.add_argument("--folder", type=Path, required=True, help="of what it tells")
    given = parser.parse_args()
    notebook = Notebook(given.folder)
    try:
        hosts = given.hosts.split(",")
        # The history of messages has the name of who had them.
        with Client(name=notebook.name, contact_points=hosts) as client:
            if given.role == "scribe":
                Scribe(client, given.queue, notebook).go_on()
            else:
                Clerk(client, given.queue, notebook, given.group, given.lease).go_on()
    except StoreError:
        raise
    except Exception as error:
        notebook.tell("trouble", error=repr(error))
        raise


@dataclass
class Scribe:
    """Puts messages in order, and tells what it does, until it is to end.

    Attributes:
        client: Its client.
        queue: The queue to put to.
        notebook: Its records; a successor goes on where they end.
    """

    client: Client
    queue: str
    notebook: Notebook
    chance: Random = field(default_factory=Random, kw_only=True)

    def __post_init__(self) -> None:
        self._next = sent_by(self.notebook.name, self.notebook.events()).acknowledged
        self._recent: list[tuple[float, range]] = []

    def go_on(self) -> None:
        while not self.notebook.is_over:
            self.step()
            _pass(self.chance.uniform(*_PUT_EVERY))

    def step(self) -> None:
        """Put the next messages, until all is over at most; then perhaps earlier ones again."""
        numbers = range(self._next, self._next + self.chance.randint(1, _MOST_PUT))
        began = time.monotonic()
        while not self._put(self.notebook.name, numbers):
            if self.notebook.is_over:
                # A fence that a wrong clock has raised refuses puts until it is lowered.
                return
            _pass(_FAILED_SECONDS)
        self._next = numbers.stop
        now = time.monotonic()
        self._recent = [each for each in self._recent if now - each[0] < _REPEAT_WITHIN]
        self._recent.append((began, numbers))
        if self.chance.random() < _REPEATED:
            self._put(self.notebook.name, self.chance.choice(self._recent)[1])
        if self.chance.random() < _ECHOED:
            self._echo()

    def _echo(self) -> None:
        """Put what another scribe has begun to put last, if that was just now."""
        other = self.chance.choice(self.notebook.peers)
        events = [event for event in other.events() if event["event"] == "putting"]
        if events and time.monotonic() - events[-1]["at"] < _REPEAT_WITHIN:
            self._put(events[-1]["producer"], range(*events[-1]["numbers"]))

    def _put(self, producer: str, numbers: range) -> bool:
        """Put messages by one call; False if it failed, so that they may be there or not."""
        told = {"producer": producer, "numbers": [numbers.start, numbers.stop]}
        self.notebook.tell("putting", **told, at=time.monotonic())
        messages = [_new(checker.Message(producer, number)) for number in numbers]
        place = None
        try:
            if len(messages) > 1:
                self.client.put_many(self.queue, messages)
            else:
                position = self.client.put(self.queue, messages[0])
                place = [position.partition, int(position)]
        except StoreError as error:
            self.notebook.tell("failed", error=repr(error))
            return False
        self.notebook.tell("put", **told, at=time.monotonic(), place=place)
        return True


def _new(message: checker.Message) -> NewMessage:
    return NewMessage(message.body, message.key, unique_id=name_of(message))


@dataclass
class Clerk:
    """Receives messages, processes and settles them, and tells what it does, until it is to end.

    Attributes:
        client: Its client.
        queue, group: What it receives.
        notebook: Its records.
        lease: How long its leases last while there are faults, in seconds.
    """

    client: Client
    queue: str
    notebook: Notebook
    group: str
    lease: float
    chance: Random = field(default_factory=Random, kw_only=True)

    def go_on(self) -> None:
        while not self.notebook.is_over:
            self.step()
            if not self.notebook.is_calm:
                _pass(self.chance.uniform(*_RECEIVE_EVERY))

    def step(self) -> None:
        """Receive once, and process and settle what has come."""
        call = uuid4().hex
        until, messages = self._receive(call)
        if not messages:
            return
        self._fail_perhaps()
        done, released = self._process(call, messages, until)
        self._fail_perhaps()
        if done and self._happens(_EXTENDED):
            self._settle(call, "extend", done, by=_EXTENSION)
            _pass(self.chance.uniform(0, _MOST_HELD_SECONDS))
        if released:
            delay = timedelta(seconds=self.chance.uniform(0, _MOST_DELAY_SECONDS))
            self._settle(call, "release", released, delay=delay)
        if done:
            self._settle(call, "ack", done)
        self._fail_perhaps()

    def _receive(self, call: str) -> tuple[float, Sequence[Message]]:
        """Messages, and until when they are held at least."""
        is_calm = self.notebook.is_calm
        most = _MOST_DRAINED if is_calm else self.chance.randint(1, _MOST_RECEIVED)
        lease = timedelta(seconds=self.lease * (_LONGER if is_calm else 1))
        attempt = call if self.chance.random() < _NAMED else None
        began = time.monotonic()
        self.notebook.tell("receiving", call=call, at=began)
        for _ in range(_TRIES if attempt else 1):
            try:
                found = self.client.receive(
                    self.queue, self.group, max=most, wait=_WAIT, lease=lease, attempt=attempt
                )
            except StoreError as error:
                self.notebook.tell("failed", error=repr(error))
                _pass(_FAILED_SECONDS)
                continue
            told = [
                (_read(each), each.partition, each.monoton, each.delivery_count) for each in found
            ]
            if found:
                times = {"began": began, "at": time.monotonic(), "lease": lease.total_seconds()}
                self.notebook.tell("received", call=call, **times, messages=told)
            return began + lease.total_seconds() - MARGIN_SECONDS, found
        return began, []

    def _process(
        self, call: str, messages: Sequence[Message], until: float
    ) -> tuple[Mapping[int, Message], Mapping[int, Message]]:
        """Process messages in order while the lease runs: those to ack, and those to release.

        Where one is not processed, neither are those after it of its key.
        """
        done: dict[int, Message] = {}
        released: dict[int, Message] = {}
        left: dict[bytes | None, dict[int, Message]] = {}
        for nth, message in enumerate(messages):
            if message.key not in left and self._happens(_RELEASED):
                left[message.key] = released
            elif message.key not in left and self._happens(_FORGOTTEN):
                left[message.key] = {}
            if message.key in left:
                left[message.key][nth] = message
                continue
            at = time.monotonic()
            if at > until:
                break
            self.notebook.tell("processed", call=call, nth=nth, at=at)
            done[nth] = message
        return done, released

    def _settle(
        self, call: str, verb: str, messages: Mapping[int, Message], **length: timedelta
    ) -> None:
        began = time.monotonic()
        told = {"call": call, "verb": verb}
        self.notebook.tell("settling", **told, messages=[*messages], at=began)
        try:
            stale = {*getattr(self.client, verb)(*messages.values(), **length)}
        except StoreError as error:
            self.notebook.tell("failed", error=repr(error))
            return
        live = [nth for nth, message in messages.items() if message.receipt not in stale]
        seconds = {name: span.total_seconds() for name, span in length.items()}
        at = time.monotonic()
        self.notebook.tell("settled", **told, messages=live, began=began, at=at, **seconds)

    def _happens(self, share: float) -> bool:
        """By chance, but not once the faults are over."""
        return self.chance.random() < share and not self.notebook.is_calm

    def _fail_perhaps(self) -> None:
        if self._happens(_DEATHS):
            self.notebook.tell("dying")
            os.kill(os.getpid(), signal.SIGKILL)
        if self._happens(_STANDSTILLS):
            seconds = self.chance.uniform(*_STILL_SECONDS)
            self.notebook.tell("standing still", seconds=seconds)
            wake = f"sleep {seconds:.1f}; kill -CONT {os.getpid()}"
            subprocess.Popen(["/bin/sh", "-c", wake])
            os.kill(os.getpid(), signal.SIGSTOP)


def _read(message: Message) -> str | None:
    """The name of a message; None if it is damaged."""
    row = row_of(message.key, message.value, message.delivery_count)
    found = checker.read_message(row.key, row.body)
    return None if found is None else name_of(found)


def _pass(seconds: float) -> None:
    threading.Event().wait(seconds)


if __name__ == "__main__":
    main()
