"""Two gateways behind one address, one killed every 20 s: what do clients of SQS see?

A real Cassandra, two gateways with ``--sqs``, and a balancer, which connects each client to one
that answers. AWS's own clients use a FIFO and a standard queue through it: senders send numbered
messages, receivers process them in order, and delete, release, extend or forget them. In turns the
gateways are killed and started again. At the end everything is drained, and the checker of
`make chaos` judges what the clients have seen. A standard queue promises neither order nor that a
send whose answer was lost is there once.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self
from uuid import UUID, uuid4

import boto3
import httpx
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cassieq_spark.http.accounts import Accounts, Secrets
from trials.chaos.checker import Message, read_message
from trials.chaos.client_checker import (
    MARGIN_SECONDS,
    ClientVerdict,
    Event,
    judge_clients,
    name_of,
    sent_by,
)
from trials.environment import Report, arguments, carry_out, cassandra, tell
from trials.processes import Program, wait_until

_GATEWAYS = 2
_SENDERS, _RECEIVERS = 2, 3
_ACCOUNT = "shop"
_QUEUES = ("orders.fifo", "orders")
#: In seconds.
_VISIBILITY, _EXTENSION, _DEDUPLICATION = 10, 25, 300
#: Of a call, by half of the receivers.
_TRIES = 4
_START_SECONDS, _DRAIN_SECONDS = 120.0, 300.0
_SEND_EVERY, _FAILED_SECONDS = 0.15, 0.2
#: The shares of messages that are released, or forgotten, with all that follows of their group;
#: and of receives whose messages are extended, then held.
_RELEASED, _FORGOTTEN, _EXTENDED = 0.05, 0.02, 0.05
_MOST_HELD_SECONDS = 12.0
#: What may be wrong with a standard queue; all of it, with a FIFO queue.
_OF_STANDARD = ("lost", "damaged", "invented", "held_twice", "again")
_Errors = (ClientError, BotoCoreError)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=3, help="of faults; %(default)s")
    parser.add_argument(
        "--kill-every", type=float, default=20, metavar="SECONDS", help="%(default)s"
    )
    given = parser.parse_args()

    def play(folder: Path) -> Report:
        return _play(folder, Random(given.seed), given.minutes * 60, given.kill_every)

    return carry_out("gateways", play, fine=lambda report: report["fine"])


def _play(folder: Path, chance: Random, seconds: float, kill_every: float) -> Report:
    secret = folder / "secret"
    secret.write_text(secrets.token_urlsafe(32))
    secret.chmod(0o600)
    with cassandra(nodes=1, data_dir=folder / "cassandra") as cluster:
        accounts = Accounts(cluster.store, Secrets((secret.read_text(),)))
        key = str(accounts.create(_ACCOUNT).keys[0].key)
        with _gateways(folder, secret, cluster.hosts) as gateways, Balancer(gateways) as balancer:
            clients = Clients(balancer.url, key, chance)
            clients.begin()
            kills = _strike(gateways, seconds, kill_every)
            tell("no more faults; draining")
            drained = clients.end()
    verdicts = {queue: clients.verdict(queue) for queue in _QUEUES}
    is_fine = (
        drained
        and not clients.troubles
        and all(_is_fine(queue, verdict) for queue, verdict in verdicts.items())
    )
    return {
        **{queue: asdict(verdict) for queue, verdict in verdicts.items()},
        "kills": kills,
        "refused_connections": balancer.refused,
        "failed_calls": clients.failures,
        "drained": drained,
        "troubles": clients.troubles,
        "fine": is_fine,
    }


def _is_fine(queue: str, verdict: ClientVerdict) -> bool:
    if queue.endswith(".fifo"):
        return verdict.is_fine
    found = asdict(verdict)
    return verdict.client_acked > 0 and not any(found[f"client_{it}"] for it in _OF_STANDARD)


@dataclass
class _Gateway:
    program: Program
    port: int

    @property
    def answers(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self.port}/ready").is_success
        return False


@contextmanager
def _gateways(folder: Path, secret: Path, hosts: str) -> Iterator[Sequence[_Gateway]]:
    gateways = []
    for number, port in enumerate(_free_ports(_GATEWAYS)):
        command = [sys.executable, "-m", "cassieq_spark.cli", "gateway", "serve", "--sqs"]
        where = ["--listen", f"127.0.0.1:{port}", "--contact-points", hosts]
        words = [*command, *where, "--secret", f"file:{secret}", "--no-access-log"]
        log = folder / f"gateway-{number}.log"
        gateways.append(_Gateway(Program(f"gateway {number}", words, log), port))
    try:
        for each in gateways:
            each.program.start()
        for each in gateways:
            if not wait_until(lambda it=each: it.answers, _START_SECONDS):  # type: ignore[misc]
                raise TimeoutError(f"{each.program.name} does not answer; see {each.program.log}")
        yield gateways
    finally:
        for each in gateways:
            each.program.kill()


def _strike(gateways: Sequence[_Gateway], seconds: float, every: float) -> int:
    """Kill one gateway after the other, each when the one before answers again."""
    end, kills = time.monotonic() + seconds, 0
    while time.monotonic() + every < end:
        threading.Event().wait(every)
        victim = gateways[kills % len(gateways)]
        tell(f"{victim.program.name} killed")
        victim.program.start()
        kills += 1
        if not wait_until(lambda it=victim: it.answers, _START_SECONDS):  # type: ignore[misc]
            raise TimeoutError(f"{victim.program.name} does not start; see {victim.program.log}")
    return kills


class Balancer:
    """Forwards each connection to the next gateway that accepts one.

    Attributes:
        refused: How often a gateway did not accept a connection.
    """

    def __init__(self, gateways: Sequence[_Gateway]) -> None:
        self._ports = [each.port for each in gateways]
        self._next = self.refused = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        begin = asyncio.start_server(self._forward, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(begin, self._loop).result()
        self._port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        """Cut all connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._ports:
            self._next += 1
            port = self._ports[self._next % len(self._ports)]
            try:
                there, back = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                self.refused += 1
                continue
            with suppress(asyncio.CancelledError):
                await asyncio.gather(_pump(reader, back), _pump(there, writer))
            return
        writer.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(1 << 16):
            target.write(piece)
            await target.drain()
    target.close()


@dataclass
class Notes:
    """What a client has told; see `client_checker`."""

    events: list[Event] = field(default_factory=list)

    def tell(self, event: str, **more: Any) -> None:
        self.events.append({"event": event, **more})


class Clients:
    """Senders and receivers of all queues, each a thread with a client of its own.

    Attributes:
        troubles: Errors that no client should meet.
        failures: Calls that have failed, as a gateway was killed.
    """

    def __init__(self, url: str, key: str, chance: Random) -> None:
        self._url, self._key, self._chance = url, key, chance
        self.is_calm, self.is_over, self.no_more = (threading.Event() for _ in range(3))
        self.troubles: list[str] = []
        self.failures = 0
        self._senders: list[Sender] = []
        self._receivers: list[Receiver] = []
        self._threads: list[threading.Thread] = []
        self._queues: dict[str, str] = {}

    def client(self, tries: int = 1) -> Any:
        """A client that tries each call so often, the last of which fails."""
        return boto3.client(
            "sqs",
            endpoint_url=self._url,
            region_name="eu-central-1",
            aws_access_key_id=_ACCOUNT,
            aws_secret_access_key=self._key,
            config=Config(
                connect_timeout=10, read_timeout=30, retries={"total_max_attempts": tries}
            ),
        )

    def begin(self) -> None:
        client = self.client(_TRIES)
        for name in _QUEUES:
            fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
            more = {"VisibilityTimeout": str(_VISIBILITY), **fifo}
            url = client.create_queue(QueueName=name, Attributes=more)["QueueUrl"]
            self._queues[name] = url
            for number in range(_SENDERS):
                own = f"{name.removesuffix('.fifo')}{len(fifo)}-{number}"
                self._senders.append(Sender(self, name, url, own, Random(self._chance.random())))
            for _ in range(_RECEIVERS):
                self._receivers.append(Receiver(self, name, url, Random(self._chance.random())))
        works = [each.go_on for each in self._senders] + [each.go_on for each in self._receivers]
        for work in works:
            thread = threading.Thread(target=self._run, args=(work,))
            self._threads.append(thread)
            thread.start()

    def _run(self, go_on: Callable[[], None]) -> None:
        try:
            go_on()
        except Exception as error:  # noqa: BLE001 (it is told)
            self.troubles.append(repr(error))

    def end(self) -> bool:
        """End the senders, then the receivers when nothing is left; False if something is."""
        self.is_calm.set()
        self.no_more.set()
        client = self.client()
        names = [f"ApproximateNumberOfMessages{it}" for it in ("", "NotVisible", "Delayed")]

        def is_empty() -> bool:
            counts: list[int] = []
            for url in self._queues.values():
                with suppress(*_Errors):
                    told = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)
                    counts += map(int, told["Attributes"].values())
            return len(counts) == len(names) * len(self._queues) and not any(counts)

        for thread in self._threads[: len(self._senders)]:
            thread.join()
        drained = wait_until(is_empty, _DRAIN_SECONDS)
        self.is_over.set()
        for thread in self._threads:
            thread.join()
        return drained

    def verdict(self, queue: str) -> ClientVerdict:
        senders = [each for each in self._senders if each.queue == queue]
        return judge_clients(
            [sent_by(each.name, each.notes.events) for each in senders],
            [event for each in senders for event in each.notes.events],
            [each.notes.events for each in self._receivers if each.queue == queue],
            [],
            window=_DEDUPLICATION,
        )


@dataclass
class Sender:
    """Sends numbered messages in order; one that may have failed again, before the next."""

    all: Clients
    queue: str
    url: str
    name: str
    chance: Random
    notes: Notes = field(default_factory=Notes)

    def go_on(self) -> None:
        client, number = self.all.client(), 0
        while not self.all.no_more.is_set():
            if self._sent(client, Message(self.name, number)):
                number += 1
                _pass(self.chance.uniform(0, 2 * _SEND_EVERY))
            else:
                _pass(_FAILED_SECONDS)

    def _sent(self, client: Any, message: Message) -> bool:
        numbers = [message.number, message.number + 1]
        told = {"producer": self.name, "numbers": numbers}
        more: dict[str, Any] = {}
        if self.queue.endswith(".fifo"):
            more = {"MessageGroupId": message.key, "MessageDeduplicationId": name_of(message)}
        else:
            more = {"MessageAttributes": {"key": _text(message.key)}}
        self.notes.tell("putting", **told, at=time.monotonic())
        try:
            sent = client.send_message(QueueUrl=self.url, MessageBody=message.body, **more)
        except _Errors:
            self.all.failures += 1
            return False
        # A standard queue may have it twice: where the other one is, nobody knows.
        place = _place(sent["MessageId"]) if self.queue.endswith(".fifo") else None
        self.notes.tell("put", **told, at=time.monotonic(), place=place)
        return True


@dataclass
class Receiver:
    """Receives messages, processes them in order, and deletes most of them."""

    all: Clients
    queue: str
    url: str
    chance: Random
    notes: Notes = field(default_factory=Notes)

    def go_on(self) -> None:
        client = self.all.client(self.chance.choice((1, _TRIES)))
        while not self.all.is_over.is_set():
            with suppress(*_Errors):
                self._step(client)
                continue
            self.all.failures += 1
            _pass(_FAILED_SECONDS)

    def _step(self, client: Any) -> None:
        call, began = uuid4().hex, time.monotonic()
        # So that a try whose answer was lost is the same receive.
        more = {"ReceiveRequestAttemptId": call} if self.queue.endswith(".fifo") else {}
        answer = client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=self.chance.randint(1, 10),
            WaitTimeSeconds=2,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
            **more,
        )
        found = answer.get("Messages", [])
        if not found:
            return
        at = time.monotonic()
        rows = [(_name_in(each), *_place(each["MessageId"]), _count(each)) for each in found]
        self.notes.tell(
            "received", call=call, began=began, at=at, lease=_VISIBILITY, messages=rows
        )
        # By the monotonic clock; the lease began after `began`.
        until = began + _VISIBILITY - MARGIN_SECONDS
        done, released = self._process(call, found, until)
        if done and self._happens(_EXTENDED):
            until = self._extend(client, call, found, done)
            _pass(self.chance.uniform(0, _MOST_HELD_SECONDS))
        for nth in released:
            self._release(client, call, nth, found[nth])
        if done:
            self._delete(client, call, found, done, until)

    def _process(
        self, call: str, found: Sequence[Mapping[str, Any]], until: float
    ) -> tuple[list[int], list[int]]:
        done: list[int] = []
        released: list[int] = []
        left: dict[str, list[int]] = {}
        for nth, message in enumerate(found):
            group = str(message["Attributes"].get("MessageGroupId", nth))
            if group not in left and self._happens(_RELEASED):
                left[group] = released
            elif group not in left and self._happens(_FORGOTTEN):
                left[group] = []
            if group in left:
                left[group].append(nth)
                continue
            at = time.monotonic()
            if at > until:
                break
            self.notes.tell("processed", call=call, nth=nth, at=at)
            done.append(nth)
        return done, released

    def _extend(
        self, client: Any, call: str, found: Sequence[Mapping[str, Any]], done: Sequence[int]
    ) -> float:
        """Extend messages; until when all of them are held for certain."""
        began = time.monotonic()
        told = {"call": call, "verb": "extend"}
        self.notes.tell("settling", **told, messages=[*done], at=began)
        entries = [
            {
                "Id": str(nth),
                "ReceiptHandle": found[nth]["ReceiptHandle"],
                "VisibilityTimeout": _EXTENSION,
            }
            for nth in done
        ]
        answer = client.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)
        live = [int(each["Id"]) for each in answer["Successful"]]
        at = time.monotonic()
        self.notes.tell("settled", **told, messages=live, began=began, at=at, by=_EXTENSION)
        return began + _EXTENSION - MARGIN_SECONDS if len(live) == len(done) else -1.0

    def _release(self, client: Any, call: str, nth: int, message: Mapping[str, Any]) -> None:
        self.notes.tell("settling", call=call, verb="release", messages=[nth], at=time.monotonic())
        with suppress(ClientError):
            # It may be in flight no more.
            client.change_message_visibility(
                QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )

    def _delete(
        self,
        client: Any,
        call: str,
        found: Sequence[Mapping[str, Any]],
        done: Sequence[int],
        until: float,
    ) -> None:
        began = time.monotonic()
        told = {"call": call, "verb": "ack", "messages": [*done]}
        self.notes.tell("settling", **told, at=began)
        entries = [{"Id": str(nth), "ReceiptHandle": found[nth]["ReceiptHandle"]} for nth in done]
        answer = client.delete_message_batch(QueueUrl=self.url, Entries=entries)
        at = time.monotonic()
        # A deletion that comes too late is answered like any other, and may have deleted nothing.
        if at < until and not answer.get("Failed"):
            self.notes.tell("settled", **told, began=began, at=at)

    def _happens(self, share: float) -> bool:
        return self.chance.random() < share and not self.all.is_calm.is_set()


def _name_in(message: Mapping[str, Any]) -> str | None:
    """The name of a message; None if it is damaged."""
    attributes = message.get("MessageAttributes", {})
    key = message["Attributes"].get("MessageGroupId") or attributes["key"]["StringValue"]
    found = read_message(key, message["Body"])
    return None if found is None else name_of(found)


def _place(message_id: str) -> tuple[int, int]:
    """The id of a message in place of its position: one is as good as the other."""
    return 0, UUID(message_id).int


def _count(message: Mapping[str, Any]) -> int:
    return int(message["Attributes"]["ApproximateReceiveCount"])


def _text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        return [stack.enter_context(each).getsockname()[1] for each in servers]


def _pass(seconds: float) -> None:
    threading.Event().wait(seconds)


if __name__ == "__main__":
    sys.exit(main())
