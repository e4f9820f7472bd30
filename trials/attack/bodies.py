"""Bodies that take more memory than they are long, and parameters that are out of range."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor

import httpx
import pyarrow as pa

from tests.support.arrow_streams import stream_of
from trials.attack.target import Target, attack
from trials.attack.verdicts import Seen, contained_if, refused_if

_ARROW = "application/vnd.apache.arrow.stream"
_MIB = 1 << 20
_MUTANTS = 200
#: Entries that take no bytes, and requests at a time.
_MANY, _AT_ONCE = 4_000_000, 8
_SCHEMA = "name string, marks array<bigint>, tags map<string,int>"


def _put(target: Target, body: bytes | str, kind: str = _ARROW, schema: str | None = None) -> Seen:
    queue = target.queue(schema=schema) if schema else target.queue()
    path = f"/{queue}/messages/batch"
    told = target.victim.ask("POST", path, content=body, headers={"Content-Type": kind})
    stored = target.victim.ask("GET", f"/{queue}/statistics").json()["stored"]
    is_refused = told.is_client_error and not stored
    serves = target.serves(target.queue() if schema else queue)
    return refused_if(is_refused and serves, f"{len(body)} bytes: {told.text}")


def _put_rows(target: Target, columns: dict[str, pa.Array], codec: str | None = None) -> Seen:
    return _put(target, stream_of(pa.table(columns), compression=codec), schema=_SCHEMA)


@attack
def arrow_dictionary(target: Target) -> Seen:
    """656 bytes are a thousand messages of a megabyte."""
    shared = pa.DictionaryArray.from_arrays(
        pa.array([0] * 1000, pa.int16()), pa.array(["x" * _MIB])
    )
    return _put(target, stream_of(pa.table({"value": shared}), compression="zstd"))


@attack
def arrow_zstd(target: Target) -> Seen:
    """A few kilobytes are hundreds of megabytes."""
    values = [b"\0" * (8 * _MIB)] * 40
    return _put(target, stream_of(pa.table({"value": values}), compression="zstd"))


@attack
def arrow_lz4(target: Target) -> Seen:
    """The same by another codec."""
    values = [b"\0" * (8 * _MIB)] * 40
    return _put(target, stream_of(pa.table({"value": values}), compression="lz4"))


@attack
def arrow_views(target: Target) -> Seen:
    """Ten thousand views of one value."""
    validity, views, data = pa.array(["x" * _MIB], pa.string_view()).buffers()
    same = pa.py_buffer(views.to_pybytes()[:16] * 1000)
    values = pa.Array.from_buffers(pa.string_view(), 1000, [validity, same, data])
    return _put(target, stream_of(pa.table({"value": values})))


@attack
def arrow_rows_without_bytes(target: Target) -> Seen:
    """A million messages of nothing."""
    return _put(target, stream_of(pa.table({"value": [b""] * 1_000_000}), compression="zstd"))


def _side_by_side(target: Target, path: str, body: bytes, kind: str) -> Seen:
    """The same request eight times at once: what one takes is nothing, what eight take may be."""
    queue = target.queue()

    def send(_: int) -> httpx.Response:
        headers = {"Content-Type": kind}
        return target.victim.ask("POST", f"/{queue}{path}", content=body, headers=headers)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        told = list(pool.map(send, range(_AT_ONCE)))
    is_refused = all(each.is_client_error for each in told)
    return refused_if(
        is_refused and target.serves(queue), f"{len(body)} bytes x {_AT_ONCE}: {told[0].text}"
    )


@attack
def arrow_headers_without_bytes(target: Target) -> Seen:
    """Two kilobytes are four million headers, whose names and values are empty; eight times."""
    empty = pa.array([""] * _MANY)
    headers = pa.MapArray.from_arrays(pa.array([0, _MANY], pa.int32()), empty, empty)
    body = stream_of(pa.table({"value": ["x"], "headers": headers}), compression="zstd")
    return _side_by_side(target, "/messages/batch", body, _ARROW)


def _million(value: str) -> str:
    return ",".join(f'"{number}":{value}' for number in range(1_000_000))


@attack
def json_of_many_fields(target: Target) -> Seen:
    """A line with a million fields that no message has; eight times."""
    body = f'{{"message":"x",{_million("1")}}}'.encode()
    return _side_by_side(target, "/messages/batch", body, "application/x-ndjson")


@attack
def json_of_many_headers(target: Target) -> Seen:
    """A message with a million headers; eight times."""
    headers = _million('"v"')
    body = f'{{"message":"x","headers":{{{headers}}}}}'.encode()
    return _side_by_side(target, "/messages/batch", body, "application/x-ndjson")


@attack
def receipts_of_many_fields(target: Target) -> Seen:
    """An ack with a million fields that no ack has; eight times."""
    body = f'{{"popReceipts":["x"],{_million("1")}}}'.encode()
    return _side_by_side(target, "/messages/ack", body, "application/json")


@attack
def arrow_mutants(target: Target) -> Seen:
    """Streams with a few bytes changed."""
    queue = target.queue()
    good = stream_of(pa.table({"value": ["a", "b"], "key": ["k", None]}), compression="lz4")
    failed = _mutants_that_fail(target, queue, good)
    return refused_if(not failed and target.serves(queue), f"{failed} of {_MUTANTS} failed")


def _mutants_that_fail(target: Target, queue: str, good: bytes) -> int:
    """How many altered streams are answered by a server error."""
    path, kind = f"/{queue}/messages/batch", {"Content-Type": _ARROW}
    chance, failed = random.Random(17), 0
    for _ in range(_MUTANTS):
        body = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        told = target.victim.ask("POST", path, content=bytes(body), headers=kind)
        failed += told.is_server_error
    return failed


@attack
def rows_zstd(target: Target) -> Seen:
    """A few kilobytes are rows of hundreds of megabytes."""
    return _put_rows(target, {"name": pa.array(["x" * (8 * _MIB)] * 40)}, "zstd")


@attack
def rows_dictionary(target: Target) -> Seen:
    """A thousand rows share one text of a megabyte."""
    texts = pa.array(["x" * _MIB])
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int16()), texts)
    return _put_rows(target, {"name": shared}, "zstd")


@attack
def rows_of_lists_without_bytes(target: Target) -> Seen:
    """A list of a hundred million nulls, which take no bytes."""
    count = 100_000_000
    marks = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count))
    return _put_rows(target, {"marks": marks})


@attack
def rows_of_shared_elements(target: Target) -> Seen:
    """A thousand lists of the same million elements."""
    elements = pa.array([1] * 1_000_000, pa.int64())
    offsets, sizes = pa.array([0] * 1000, pa.int32()), pa.array([len(elements)] * 1000, pa.int32())
    marks = pa.ListViewArray.from_arrays(offsets, sizes, elements)
    return _put_rows(target, {"marks": marks}, "zstd")


@attack
def rows_mutants(target: Target) -> Seen:
    """Streams of rows with a few bytes changed."""
    queue = target.queue(schema=_SCHEMA)
    rows = {"name": ["a", None], "marks": [[1, 2], None], "tags": [[("k", 1)], None]}
    types = {"tags": pa.map_(pa.string(), pa.int32()), "marks": pa.list_(pa.int64())}
    good = stream_of(
        pa.table({name: pa.array(given, types.get(name)) for name, given in rows.items()}),
        compression="lz4",
    )
    failed = _mutants_that_fail(target, queue, good)
    return refused_if(
        not failed and target.serves(target.queue()), f"{failed} of {_MUTANTS} failed"
    )


@attack
def schemas_without_end(target: Target) -> Seen:
    """Schemas that are too deep, too wide and too long."""
    told = [
        target.victim.ask("POST", json={"queueName": f"deep{number}", "schema": schema})
        for number, schema in enumerate(
            (
                "a " + "array<" * 5_000 + "int" + ">" * 5_000,
                "a " + "struct<a:" * 5_000 + "int" + ">" * 5_000,
                ", ".join(f"c{number} int" for number in range(100_000)),
                "a int comment '" + "x" * _MIB + "'",
                "/*" * _MIB,
            )
        )
    ]
    is_refused = all(each.is_client_error for each in told)
    statuses = [each.status_code for each in told]
    return refused_if(is_refused and target.serves(target.queue()), statuses)


@attack
def lines_of_nothing(target: Target) -> Seen:
    """Thirty million empty lines."""
    return _put(target, "\n" * (30 * _MIB), "application/x-ndjson")


@attack
def deep_json(target: Target) -> Seen:
    """JSON a million levels deep."""
    return _put(target, "[" * _MIB, "application/x-ndjson")


@attack
def numbers_without_end(target: Target) -> Seen:
    """A number of a million digits where seconds go."""
    queue = target.queue()
    body = '{"popReceipts": ["x"], "delaySeconds": 1' + "0" * _MIB + "}"
    told = target.victim.ask("POST", f"/{queue}/messages/release", content=body)
    return refused_if(told.is_client_error, told.text)


@attack
def receipts_without_end(target: Target) -> Seen:
    """Millions of receipts by one request."""
    queue = target.queue()
    body = '{"popReceipts": [' + '"",' * (2 * _MIB) + '""]}'
    told = target.victim.ask("POST", f"/{queue}/messages/ack", content=body)
    return refused_if(told.is_client_error, told.text)


@attack
def answers_of_control_characters(target: Target) -> Seen:
    """A look at twelve messages that JSON makes six times as long."""
    queue = target.queue()
    for _ in range(12):
        target.victim.ask("POST", f"/{queue}/messages", content=b"\0" * (8 * _MIB))
    told = target.victim.ask("GET", f"/{queue}/messages", params={"max": 100})
    return contained_if(len(told.content) < 100 * _MIB, f"{len(told.content)} bytes")


@attack
def gets_of_what_was_small(target: Target) -> Seen:
    """A batch of messages that are small as stored, and large as they are got."""
    queue = target.queue(maxDeliveryCount=1)
    for _ in range(12):
        target.victim.ask("POST", f"/{queue}/messages", content=b"\0" * (8 * _MIB))
    sizes, counts = [], []
    while True:
        told = target.victim.ask("POST", f"/{queue}/messages/receive", params={"max": 10_000})
        if told.status_code != 200:
            break
        sizes.append(len(told.content))
        counts.append(len(told.text.splitlines()))
    return contained_if(
        sizes and max(sizes) < 100 * _MIB and sum(counts) == 12,
        f"{sum(counts)} messages by answers of {max(sizes, default=0)} bytes at most",
    )


def _put_with(target: Target, **params: str) -> Seen:
    queue = target.queue()
    putter = target.key_with("PutMessage", queue=queue)
    bodies = {"messages": "x", "messages/batch": json.dumps({"message": "x"}) + "\n"}
    told = [
        putter.ask("POST", f"/{queue}/{path}", content=body, params=params)
        for path, body in bodies.items()
    ]
    is_refused = all(each.is_client_error for each in told)
    return refused_if(is_refused and target.serves(queue), [each.status_code for each in told])


@attack
def the_last_instant(target: Target) -> Seen:
    """Delivered on the last day of all, in a time zone that makes it later."""
    return _put_with(target, visibleAt="9999-12-31T23:59:59-23:59")


@attack
def the_first_instant(target: Target) -> Seen:
    """Delivered on the first day of all, in a time zone that makes it earlier: so at once."""
    queue = target.queue()
    putter = target.key_with("PutMessage", queue=queue)
    params = {"visibleAt": "0001-01-01T00:00:00+14:00"}
    told = putter.ask("POST", f"/{queue}/messages", content="x", params=params)
    return contained_if(told.is_client_error or target.serves(queue), told.status_code)


@attack
def a_far_instant(target: Target) -> Seen:
    """Delivered in the year 9000."""
    return _put_with(target, visibleAt="9000-01-01T00:00:00Z")


@attack
def delays_without_end(target: Target) -> Seen:
    """Delayed for longer than a double can say."""
    seen = [_put_with(target, initialInvisibilitySeconds=each) for each in ("1e308", "inf", "nan")]
    return refused_if(all(each.verdict == "refused" for each in seen), seen[0].told)


@attack
def instants_to_look_for(target: Target) -> Seen:
    """Dead letters and messages since instants out of range."""
    queue = target.queue()
    instants = ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00")
    told = [
        target.victim.ask("GET", f"/{queue}/{what}", params={name: at})
        for at in instants
        for what, name in (("dead", "since"), ("dead", "until"), ("messages", "start"))
    ]
    statuses = [each.status_code for each in told]
    return refused_if(max(statuses) < 500 and target.serves(queue), statuses)
