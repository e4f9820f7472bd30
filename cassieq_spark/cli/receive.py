"""``cassieq receive``: lease messages; print them, or run a command for each."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from enum import Enum, auto
from typing import Annotated

import typer

from cassieq_spark.cli.complete import complete_groups
from cassieq_spark.cli.execute import Commands, Ended
from cassieq_spark.cli.messages import DURATION, LinesOfJson, line_of
from cassieq_spark.cli.options import MESSAGES_PANEL, QueueName, Value, command
from cassieq_spark.cli.outlet import NotTakenError, Outlet
from cassieq_spark.cli.output import FAILED, INTERRUPTED, tell_rate
from cassieq_spark.client import Client, Message
from cassieq_spark.client.settling import by_lease, settle_all
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import Order, validate_name
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import duration
from cassieq_spark.signals import Stop, stopped_by_signals
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from cassieq_spark.terminal import echo

app = typer.Typer()

#: How many messages are leased together to be printed.
_TOGETHER = 1000
#: How long, at most, a call waits for messages; a signal is noticed after that.
_PATIENCE = timedelta(seconds=1)
#: Pauses between two looks for messages while commands run, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_LEASE = duration(timedelta(days=365))


class PrintedFate(Enum):
    """The fate of a message after it was printed."""

    ACK = auto()
    RELEASE = auto()
    KEEP = auto()


@command(app, panel=MESSAGES_PANEL)
def receive(  # noqa: PLR0913 (one per option)
    queue: QueueName,
    *,
    connection: ConnectionOptions,
    group: Annotated[
        str,
        typer.Option(
            "--group",
            help="Consumer group; created if it does not exist.",
            metavar="GROUP",
            show_default=False,
            autocompletion=complete_groups,
        ),
    ],
    most: Annotated[
        int | None,
        typer.Option(
            "--max",
            help="Messages to receive, at most.",
            min=1,
            show_default="1; no limit with --follow or --exec",
        ),
    ] = None,
    wait: Annotated[
        timedelta, Value(DURATION, "How long to wait for a message if there is none: 10s.")
    ] = timedelta(0),
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more messages until Ctrl-C.")
    ] = False,
    lease: Annotated[
        timedelta | None,
        Value(_LEASE, "How long others do not get the messages.", without="that of the queue"),
    ] = None,
    ack: Annotated[
        bool, typer.Option("--ack", help="Ack messages once they are taken; the default.")
    ] = False,
    release: Annotated[
        bool,
        typer.Option(
            "--release", help="Hold the messages until all are taken, and then release them."
        ),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Hold the messages until their lease runs out.")
    ] = False,
    receipts: Annotated[
        bool,
        typer.Option(
            "--receipts",
            help="As --keep --json: print JSON with a receipt for 'cassieq ack', 'release', "
            "'extend' and 'reject'.",
        ),
    ] = False,
    execute: Annotated[
        str | None,
        typer.Option(
            "--exec",
            help="Run this command by sh for each message, and ack the message if the exit code "
            "is 0; else release it.",
            metavar="COMMAND",
            show_default=False,
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option("--parallel", help="Commands that run at a time, at most.", min=1)
    ] = 1,
    retry_after: Annotated[
        timedelta,
        Value(DURATION, "Delay before a message whose command failed is delivered again: 30s."),
    ] = timedelta(0),
    as_json: LinesOfJson = False,
) -> None:
    """Receive messages: print each on a line, or run a command for each.

    A message is acked once it is taken. A terminal and a file take it when it is written; a pipe,
    when its reader has read it: 'cassieq receive ... | head -1' acks one message, and the others
    count as never delivered. (That is known on Linux, macOS and BSD; elsewhere a pipe takes what
    is written. What a reader does with a line that it has read is not known: for that, use
    --receipts or --exec.) A file or a pipe gets the exact bytes; on a terminal, control characters
    are spelled out. In a queue with a schema, a line is a JSON object.

    With --exec, the value is the standard input of the command. The variables
    CASSIEQ_MESSAGE_QUEUE, _GROUP, _PARTITION, _MONOTON, _DELIVERIES, _PUBLISHED_AT, _RECEIPT,
    _HEADERS (JSON), _KEY and _KEY_BASE64 (a key that is not UTF-8) describe the message. Its lease
    is extended while the command runs. The command does not get Ctrl-C: the first one lets running
    commands end, and settles their messages; the second one ends the commands, and releases
    their messages. The exit code is 1 if a command failed.

    Examples:
        cassieq receive orders --group billing
        cassieq receive orders --group billing --max 100 --wait 10s > orders.txt
        cassieq receive orders --group billing --follow --json | jq .value
        cassieq receive orders --group billing --exec './bill.sh' --parallel 4 --follow
        cassieq receive orders --group billing --receipts | ./process | cassieq ack -
    """
    fate = _fate(ack=ack, release=release, keep=keep or receipts)
    if execute is None and (parallel > 1 or retry_after):
        raise OptionError("--parallel and --retry-after are for --exec: give a command")
    if execute is not None and (fate is not PrintedFate.ACK or as_json):
        raise OptionError("--exec decides itself what becomes of messages, and prints none")
    if follow and fate is PrintedFate.RELEASE:
        raise OptionError(
            "--release gives messages back in the end, and --follow has none: leave out one of "
            "them, or look at messages with 'cassieq peek'"
        )
    validate_name("group", group)
    limit = most if most is not None or follow or execute else 1
    with closing(open_store(connection)) as store, stopped_by_signals() as stop:
        held = HeldMessages(store, queue, group, lease=lease, fate=fate)
        if parallel > 1 and held.order is not Order.NONE:
            raise OptionError(
                f"queue {queue} has an order ({held.order.value}), which commands that run at the "
                "same time would not keep: leave --parallel out"
            )
        supply = _Supply(held, stop, limit=limit, wait=None if follow else wait)
        if execute is None:
            _print_all(supply, as_json=as_json or receipts)
        else:
            _run_all(supply, Commands(execute), parallel=parallel, retry_after=retry_after)
    if stop.signal is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _fate(*, ack: bool, release: bool, keep: bool) -> PrintedFate:
    if ack + release + keep > 1:
        raise OptionError("--ack, --release and --keep exclude each other: give one of them")
    return PrintedFate.RELEASE if release else PrintedFate.KEEP if keep else PrintedFate.ACK


class HeldMessages:
    """The messages that this command holds: it settles them, and extends their leases in time.

    Args:
        store: Where the queue is kept.
        queue: Name of the queue.
        group: Name of the group; created if it does not exist.
        lease: How long messages are held; None for the queue's own lease.
        fate: What becomes of messages that are done.
    """

    def __init__(
        self, store: Store, queue: str, group: str, *, lease: timedelta | None, fate: PrintedFate
    ) -> None:
        self._store = store
        self._client = Client.from_store(store)
        definition = self._client.queue(queue)
        self._queue, self._group = queue, group
        self._lease = lease or definition.lease
        self._fate = fate
        self._open: dict[str, Message] = {}
        self._done: dict[str, Message] = {}
        self._beats_at = 0.0
        self.order = definition.order
        #: How many messages were no longer held when they were to be settled.
        self.stale = 0

    def receive(self, most: int, wait: timedelta) -> list[Message]:
        """Lease messages. One LWT, and some reads."""
        found = self._client.receive(
            self._queue, self._group, max=most, wait=wait, lease=self._lease
        )
        if not self._open and not self._done:
            self._beats_at = time.monotonic() + self._lease.total_seconds() / 3
        self._open |= {each.receipt: each for each in found}
        return found

    def done(self, message: Message) -> None:
        """Settle a message with the next ones."""
        if self._open.pop(message.receipt, None) is not None:
            self._done[message.receipt] = message

    def fail(self, messages: Sequence[Message], *, delay: timedelta) -> None:
        """Release messages that could not be processed. One LWT per lease."""
        for each in messages:
            self._open.pop(each.receipt, None)
        self._count(self._client.release(*messages, delay=delay))

    def settle(self) -> None:
        """Settle messages that are done. One LWT per lease; none if there are none.

        Messages to release are held until `finish`: otherwise they would be received again.
        """
        if self._fate is PrintedFate.RELEASE:
            return
        done, self._done = self._done, {}
        if self._fate is PrintedFate.ACK:
            self._count(self._client.ack(*done))

    def beat(self) -> float:
        """After a third of the lease, settle messages that are done, and extend those still held.

        Returns:
            After how many seconds to call it again; at most one.
        """
        if not self._open and not self._done:
            return _PATIENCE.total_seconds()
        if time.monotonic() >= self._beats_at:
            self._beats_at = time.monotonic() + self._lease.total_seconds() / 3
            self.settle()
            for receipt in self._client.extend(*self._open, *self._done, by=self._lease):
                self._open.pop(receipt, None)
                self._done.pop(receipt, None)
                self.stale += 1
        return min(_PATIENCE.total_seconds(), max(0.0, self._beats_at - time.monotonic()))

    def fail_all(self, *, delay: timedelta) -> None:
        """Release all messages that are not done."""
        self.fail([*self._open.values()], delay=delay)

    def finish(self) -> None:
        """Settle messages that are done; unseen ones go back, and do not count as delivered.

        One LWT per lease, or two.
        """
        try:
            self.settle()
            if self._fate is PrintedFate.RELEASE:
                self._count(self._client.release(*self._done))
        finally:
            back, self._open = by_lease(self._open), {}
            settle_all(self._store, back, lambda monotons: Settlement(unread=monotons))

    def _count(self, stale: Iterable[str]) -> None:
        self.stale += len([*stale])


class _Supply:
    """Leases messages until there are enough, or none came in time, or the program must end.

    Args:
        held: Takes the messages.
        stop: Ends the supply.
        limit: Maximum number of messages in all; None for no limit.
        wait: How long to wait if there are none; None: until ``stop``.
    """

    def __init__(
        self, held: HeldMessages, stop: Stop, *, limit: int | None, wait: timedelta | None
    ) -> None:
        self.held = held
        self.stop = stop
        self._left = limit
        self._wait = wait
        self._idle_since = time.monotonic()

    @property
    def is_over(self) -> bool:
        """True if no more messages are wanted."""
        return self._left == 0 or self.stop.is_set()

    @property
    def has_waited(self) -> bool:
        """True if no message has come for as long as the command waits."""
        return not self._patience

    def begin_to_wait(self) -> None:
        """Count the waiting time from now on."""
        self._idle_since = time.monotonic()

    def look(self, most: int, *, at_once: bool = False) -> list[Message]:
        """Lease messages, within a second; none if the program must end."""
        most = most if self._left is None else min(most, self._left)
        until_beat = timedelta(seconds=self.held.beat())
        patience = timedelta(0) if at_once else min(until_beat, self._patience)
        found = self.held.receive(most, patience)
        if self.stop.is_set():
            # Nobody has seen them; they are given back in the end.
            return []
        if found:
            self.begin_to_wait()
            self._left = None if self._left is None else self._left - len(found)
        return found

    @property
    def _patience(self) -> timedelta:
        if self._wait is None:
            return _PATIENCE
        idle = timedelta(seconds=time.monotonic() - self._idle_since)
        return max(timedelta(0), self._wait - idle)


def _print_all(supply: _Supply, *, as_json: bool) -> None:
    """Print messages; each is done once it is taken."""
    held = supply.held
    out = Outlet(typer.get_binary_stream("stdout"), supply.stop, held.beat)
    try:
        while not supply.is_over:
            messages = supply.look(_TOGETHER)
            for message in messages:
                line = line_of(message, as_json=as_json, for_people=out.is_terminal)
                try:
                    out.put(line)
                except NotTakenError as error:
                    # The reader has what it wants, or Ctrl-C. The others go back uncounted.
                    held.fail([message] * error.is_seen, delay=timedelta(0))
                    return
                held.done(message)
            held.settle()
            if not messages and supply.has_waited:
                break
    finally:
        held.finish()
        _tell_stale(held, "their reader had taken them")


def _run_all(
    supply: _Supply, commands: Commands, *, parallel: int, retry_after: timedelta
) -> None:
    """Run a command for each message; each is done when its command has ended well."""
    held, begun = supply.held, time.monotonic()
    count = failed = 0
    pause, is_told = _FIRST_PAUSE, False
    try:
        while commands.count or not supply.is_over:
            room = 0 if supply.is_over else parallel - commands.count
            messages = supply.look(room, at_once=commands.count > 0) if room else []
            for message in messages:
                commands.start(message)
            if not commands.count:
                if supply.has_waited:
                    break
                continue
            # With room for more, it is time to look again soon.
            pause = _FIRST_PAUSE if messages else min(2 * pause, _LONGEST_PAUSE)
            ended = commands.wait(min(pause, held.beat()))
            count += len(ended)
            failed += _settle_ended(held, ended, retry_after)
            if ended:
                supply.begin_to_wait()
            if supply.stop.is_set() and commands.count and not is_told:
                is_told = True
                _tell(f"waiting for {commands.count} command(s); Ctrl-C again ends them")
            if supply.stop.count > 1:
                break
    finally:
        if commands.count:
            count += commands.count
            failed += commands.count
            commands.end()
            held.fail_all(delay=retry_after)
        held.finish()
    more = f": {count - failed:,} acked, {failed:,} released"
    tell_rate(count, time.monotonic() - begun, more)
    _tell_stale(held, "their command ended, or the command settled them")
    if failed and supply.stop.signal is not signal.SIGINT:
        raise typer.Exit(FAILED)


def _settle_ended(held: HeldMessages, ended: Sequence[Ended], retry_after: timedelta) -> int:
    """Ack or release messages whose commands have ended; return how many are released."""
    failed = [each for each in ended if each.code]
    for each in failed:
        _tell(f"message {each.message.receipt}: exit code {each.code}; it is released")
    held.fail([each.message for each in failed], delay=retry_after)
    for each in ended:
        if not each.code:
            held.done(each.message)
    held.settle()
    return len(failed)


def _tell_stale(held: HeldMessages, until: str) -> None:
    if held.stale:
        _tell(
            f"the lease of {held.stale:,} message(s) ran out before {until}: they are delivered "
            "again, unless they are settled"
        )


def _tell(text: str) -> None:
    echo(f"cassieq: {text}", err=True)
