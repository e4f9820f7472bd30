"""Attacks by connections: what one can do without a key, and many at the same time."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import httpx

from trials.attack.target import Target, attack, many
from trials.attack.verdicts import Seen, contained_if, refused_if

_MIB = 1 << 20
_SLOW = 5.0


def _without_end(target: Target, begin: bytes, part: bytes) -> Seen:
    """Send the beginning of a request, and then a part of it again and again: 100 MiB at most."""
    sent = 0
    with many([target.connect()]) as (connection,):
        connection.settimeout(5)
        with suppress(OSError):
            connection.sendall(begin)
            while sent < 100 * _MIB:
                connection.sendall(part)
                sent += len(part)
    return refused_if(sent < 32 * _MIB, f"{sent} bytes were taken")


def _holding(target: Target, connections: int, asked: bytes) -> Seen:
    """Open connections, send the same on each, and see how long puts of the victim take then."""
    queue = target.queue()
    with many([target.connect() for _ in range(connections)]) as held:
        for each in held:
            each.sendall(asked)
        time.sleep(0.5)
        slowest = target.puts_slowly(queue, 10)
    return contained_if(slowest < _SLOW, f"the slowest of ten puts took {slowest:.1f} s")


@attack
def headers_without_end(target: Target) -> Seen:
    """A hundred megabytes of headers, without a key."""
    part = b"".join(b"x-%d: %s\r\n" % (number, b"y" * 1000) for number in range(1000))
    return _without_end(target, b"GET /health HTTP/1.1\r\nHost: x\r\n", part)


@attack
def one_header_without_end(target: Target) -> Seen:
    """One header of a hundred megabytes, without a key."""
    begin = b"GET /health HTTP/1.1\r\nHost: x\r\nx-long: "
    return _without_end(target, begin, b"y" * _MIB)


@attack
def a_path_without_end(target: Target) -> Seen:
    """A path of a hundred megabytes."""
    return _without_end(target, b"GET /", b"y" * _MIB)


@attack
def headers_that_never_end(target: Target) -> Seen:
    """A hundred connections that never finish their headers."""
    return _holding(target, 100, b"GET /health HTTP/1.1\r\nHost: x\r\n")


@attack
def bodies_that_never_come(target: Target) -> Seen:
    """Eight connections that announce 32 MiB each, and send nothing."""
    path = f"/api/v1/accounts/{target.stranger.name}/queues/{target.queue(target.stranger)}"
    asked = (
        f"POST {path}/messages/batch HTTP/1.1\r\nHost: x\r\nContent-Length: {32 * _MIB}\r\n"
        f"Authorization: Key {target.stranger.key}\r\n\r\n"
    )
    return _holding(target, 8, asked.encode())


@attack
def long_polls_of_one_account(target: Target) -> Seen:
    """Two thousand requests of one account that wait."""
    queue, strangers = target.queue(), target.queue(target.stranger)
    url = f"{target.stranger.queues}/{strangers}/messages/next?wait=15"

    async def flood() -> float:
        # Connections are counted by address, and the victim has another one.
        transport = httpx.AsyncHTTPTransport(
            local_address="127.0.0.9", limits=httpx.Limits(max_connections=None)
        )
        headers = {"Authorization": f"Key {target.stranger.key}"}
        async with httpx.AsyncClient(transport=transport, timeout=60, headers=headers) as client:
            polls = [asyncio.create_task(client.get(url)) for _ in range(2100)]
            await asyncio.sleep(8)
            slowest = await asyncio.to_thread(target.puts_slowly, queue, 5)
            for each in polls:
                each.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
            return slowest

    slowest = asyncio.run(flood())
    return contained_if(slowest < _SLOW, f"the slowest of five puts took {slowest:.1f} s")


@attack
def heads_behind_a_long_poll(target: Target) -> Seen:
    """Three hundred connections with a long poll, and 60 kB of requests that wait for it."""
    queue = target.queue(target.stranger)
    path = f"/api/v1/accounts/{target.stranger.name}/queues/{queue}/messages/next?wait=30"
    key = f"Authorization: Key {target.stranger.key}\r\n"
    asked = f"GET {path} HTTP/1.1\r\nHost: x\r\n{key}\r\n"
    waiting = "GET /health HTTP/1.1\r\nHost: x\r\n" + "x: y\r\n" * 90 + "\r\n"
    return _holding(target, 300, (asked + waiting * 100).encode())


@attack
def smuggled_requests(target: Target) -> Seen:
    """Two lengths, or a length and chunks: a proxy may see one request where there are two."""
    first = b"POST /health HTTP/1.1\r\nHost: x\r\n"
    hidden = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    told = [
        target.speak(first + extra + hidden)
        for extra in (
            b"Content-Length: 0\r\nContent-Length: 40\r\n\r\n",
            b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            b"Content-Length : 0\r\n\r\n",
        )
    ]
    answers = [each.count(b"HTTP/1.1 ") for each in told]
    return refused_if(not any(b"# HELP" in each for each in told), f"answers: {answers}")


@attack
def answers_that_nobody_reads(target: Target) -> Seen:
    """Connections that ask for much, and read nothing."""
    queue = target.queue()
    for _ in range(4):
        target.victim.ask("POST", f"/{queue}/messages", content=b"\0" * (8 * _MIB))
    path = f"/api/v1/accounts/{target.victim.name}/queues/{queue}/messages?max=4"
    asked = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Key {target.victim.key}\r\n\r\n"
    return _holding(target, 12, asked.encode())
