"""One queue of an account, by HTTP."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import httpx

from cassieq_spark.arguments import (
    A_MOMENT,
    AT_ONCE,
    bytes_of,
    check_count,
    check_duration,
    check_flag,
    check_many,
    check_text,
    shown,
)
from cassieq_spark.display import Listing
from cassieq_spark.errors import OptionError
from cassieq_spark.http.accounts.account import check_account, full_name
from cassieq_spark.http.accounts.signing import sign_request
from cassieq_spark.http.client.messages import (
    Headers,
    HttpError,
    HttpMessage,
    checked,
    encoded,
    headers_sent,
    idempotency_sent,
    json_of,
    line_of,
    messages_of,
    object_of,
    receipt_of,
)
from cassieq_spark.model import validate_name

_LEASE = timedelta(seconds=30)
_TIMEOUT = timedelta(seconds=40)
_BUSY = {429, 503}
_NOTHING = 204
_LINES = "application/x-ndjson"
# Above a limit httpcore closes idle connections, one of which another thread may just have picked.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)


class HttpQueue:
    """One queue of an account. Safe to use from many threads.

    Example::

        with HttpQueue("http://127.0.0.1:8080", "acme", "orders", key=KEY) as orders:
            orders.put("hello")
            for message in orders.receive(max=10, wait=timedelta(seconds=20)):
                orders.ack(message)

    Args:
        url: The gateway's URL.
        account: Name of the account.
        queue: Name of its queue.
        key: A key of the account.
        signed_url: Instead of a key, the query of a signed URL.
        sign: Sign path, query, headers and body of each request with the key, and do not send it.
        patience: How long a call retries while the gateway answers 429 or 503.
        ca_file: PEM file of the CAs of the gateway's certificate; None: those that the machine
            trusts.

    Raises:
        OptionError: Neither a key nor a signed URL is given, or both are; or the name of the
            account or queue is not valid.
    """

    def __init__(  # noqa: PLR0913 (each is a choice of its own, by name)
        self,
        url: str,
        account: str,
        queue: str,
        *,
        key: str | None = None,
        signed_url: str | None = None,
        sign: bool = False,
        patience: timedelta = timedelta(seconds=30),
        ca_file: str | None = None,
    ) -> None:
        if (key is None) == (signed_url is None):
            raise OptionError("give a key, or the query of a signed URL: one of the two")
        for name, given in (("key", key), ("signed_url", signed_url), ("ca_file", ca_file)):
            if given is not None:
                check_text(name, given)
        check_flag("sign", sign)
        check_duration("patience", patience)
        self._account = account
        self._key = key
        self._sign = sign
        self._query = dict(httpx.QueryParams(signed_url)) if signed_url else {}
        full_name(check_account(account), queue)
        self._path = f"/api/v1/accounts/{account}/queues/{queue}"
        self._queue = queue
        self._patience = patience.total_seconds()
        # Without TLS, do not read all the CAs of the machine: that takes a while.
        encrypted = _checked_url(url).startswith("https:")
        try:
            context = ssl.create_default_context(cafile=ca_file) if encrypted else False
        except (OSError, ValueError) as error:
            raise OptionError(
                f"ca_file {ca_file!r} has no certificates of CAs: {error}"
            ) from error
        self._http = httpx.Client(base_url=url, verify=context, limits=_LIMITS)

    def create(self, **options: Any) -> bool:
        """Create the queue; False if it exists.

        Args:
            options: As in the API: ``maxDeliveryCount``, ``dlqName``, ``strictFifo``, ...

        Raises:
            HttpError: The gateway refused.
        """
        path = self._path.rpartition("/")[0]
        made = self._ask("POST", path, content=json_of({"queueName": self._queue, **options}))
        return made.status_code == httpx.codes.CREATED

    def delete(self) -> None:
        """Delete the queue and its messages.

        Raises:
            NotFoundError: There is no such queue.
        """
        self._ask("DELETE", self._path)

    def stats(self) -> dict[str, Any]:
        """The counts of the queue and of its groups, exactly.

        Raises:
            NotFoundError: There is no such queue.
        """
        return object_of(self._ask("GET", self._path + "/statistics"))

    def put(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta = AT_ONCE,
        idempotency_key: str | None = None,
    ) -> int | None:
        """Put a message. Puts of many programs share an LWT.

        Args:
            value: The body.
            key: The key of the message.
            headers: The headers of the message.
            delay: How long after it is published it is delivered, at the earliest.
            idempotency_key: Calls under the same key publish the message once; it then takes an
                LWT of its own.

        Returns:
            The message's monoton in its partition: it is published and durable. None if it was put
            before under its idempotency key.

        Raises:
            HttpError: The gateway refused. With status 504, or without an answer (status 0), the
                outcome is unknown: repeat the put only under an idempotency key.
        """
        check_duration("delay", delay)
        body = bytes_of(value, "the value of the message")
        sent: dict[str, bytes | str] = {**headers_sent(headers)}
        query: dict[str, Any] = {"initialInvisibilitySeconds": delay.total_seconds()}
        if key is not None:
            query["key"], query["keyEncoding"] = encoded(key, "the key of the message")
        if idempotency_key is not None:
            sent |= idempotency_sent(idempotency_key)
        answer = self._ask(
            "POST", self._path + "/messages", query=query, headers=sent, content=body
        )
        monoton: int | None = object_of(answer, "monoton")["monoton"]
        return monoton

    def put_many(
        self,
        values: Iterable[bytes | str],
        *,
        delay: timedelta = AT_ONCE,
        idempotency_key: str | None = None,
    ) -> range | dict[int, range] | None:
        """Put messages that become visible together, or never. One LWT.

        Returns:
            Their monotons, in order; of a queue with several partitions, by partition, each of
            which becomes visible by itself. None if they were put before under their idempotency
            key.

        Raises:
            HttpError: See `put`.
        """
        sent: dict[str, bytes | str] = {"Content-Type": _LINES}
        if idempotency_key is not None:
            sent |= idempotency_sent(idempotency_key)
        check_duration("delay", delay)
        check_many("values", values, "a list of values; for a single value, use put")
        query = {"initialInvisibilitySeconds": delay.total_seconds()}
        body = b"".join(line_of(each, f"value {at} (from 0)") for at, each in enumerate(values))
        path = self._path + "/messages/batch"
        answer = self._ask("POST", path, query=query, headers=sent, content=body)
        range_ = object_of(answer, "start", "stop")
        if "partitions" in range_:
            parts = range_["partitions"].items()
            return {int(at): range(each["start"], each["stop"]) for at, each in parts}
        return None if range_["start"] is None else range(range_["start"], range_["stop"])

    def receive(
        self,
        *,
        max: int = 1,  # noqa: A002 (the word that a user looks for)
        group: str = "default",
        wait: timedelta = AT_ONCE,
        lease: timedelta = _LEASE,
    ) -> list[HttpMessage]:
        """Lease messages.

        Args:
            max: Most messages.
            group: Name of the consumer group.
            wait: How long to wait for the first message.
            lease: How long they are leased.

        Returns:
            Messages in the order of their monotons; none if none came in time.

        Raises:
            NotFoundError: There is no such queue.
            HttpError: The gateway refused.
        """
        check_count("max", max)
        validate_name("group", group)
        check_duration("wait", wait)
        check_duration("lease", lease)
        query = {
            "max": max,
            "group": group,
            "wait": wait.total_seconds(),
            "invisibilityTimeSeconds": lease.total_seconds(),
        }
        answer = self._ask(
            "POST", self._path + "/messages/receive", query=query, wait=wait.total_seconds()
        )
        return Listing(messages_of(answer) if answer.status_code != _NOTHING else [])

    def ack(self, *messages: HttpMessage | str) -> list[str]:
        """Ack messages.

        Returns:
            The stale receipts; those messages were not acked.

        Raises:
            NotFoundError: There is no such queue.
            HttpError: The gateway refused; it does no harm to repeat the call.
        """
        return self._settle("ack", messages)

    def release(self, *messages: HttpMessage | str, delay: timedelta = AT_ONCE) -> list[str]:
        """Release messages: they are delivered again, after ``delay``; see `ack`."""
        check_duration("delay", delay)
        return self._settle("release", messages, delaySeconds=delay.total_seconds())

    def extend(self, *messages: HttpMessage | str, by: timedelta) -> list[str]:
        """Extend leases: they end ``by`` from now; see `ack`."""
        check_duration("by", by, least=A_MOMENT)
        return self._settle("extend", messages, seconds=by.total_seconds())

    def reject(self, *messages: HttpMessage | str, reason: str) -> list[str]:
        """Send messages to the dead-letter queue; see `ack`."""
        return self._settle("reject", messages, reason=check_text("reason", reason))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _settle(self, what: str, messages: Sequence[HttpMessage | str], **more: Any) -> list[str]:
        if not messages:
            return []
        receipts = [receipt_of(each) for each in messages]
        path = f"{self._path}/messages/{what}"
        answer = self._ask("POST", path, content=json_of({"popReceipts": receipts, **more}))
        stale: list[str] = object_of(answer, "stale")["stale"]
        return stale

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        wait: float = 0.0,
        **body: Any,
    ) -> httpx.Response:
        """Send a request; retry while the gateway says that it did nothing (429, 503).

        Each attempt is signed anew, as the gateway accepts a signature once.
        """
        end = time.monotonic() + self._patience
        while True:
            try:
                request = self._http.build_request(
                    method,
                    path,
                    params={**self._query, **(query or {})},
                    headers=_raw(headers or {}),
                    timeout=_TIMEOUT.total_seconds() + wait,
                    **body,
                )
                request.headers.update(self._credentials(request, path))
                answer = self._http.send(request)
            except httpx.HTTPError as error:
                raise HttpError(f"the gateway did not answer: {error}") from error
            pause = _retry_after(answer)
            if answer.status_code not in _BUSY or time.monotonic() + pause > end:
                return checked(answer)
            time.sleep(pause)

    def _credentials(self, request: httpx.Request, path: str) -> dict[str, str]:
        if self._key is None:
            return {}
        if not self._sign:
            return {"Authorization": f"Key {self._key}"}
        # The path as the gateway sees it: a proxy may have removed a prefix from the URL's.
        return sign_request(
            self._key,
            self._account,
            request.method,
            path,
            datetime.now(UTC),
            query=request.url.query,
            headers=request.headers.raw,
            body=request.content,
        )


def _checked_url(url: object) -> str:
    if isinstance(url, str):
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, UnicodeError):
            pass
        else:
            if parsed.scheme in {"http", "https"} and parsed.host:
                return url
    raise OptionError(f"url must be such as http://127.0.0.1:8080, not {shown(url)}")


def _retry_after(answer: httpx.Response) -> float:
    """Seconds until the next attempt."""
    seconds = answer.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdecimal() else 1.0


def _raw(headers: Mapping[str, bytes | str]) -> list[tuple[bytes, bytes]]:
    return [
        (name.encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in headers.items()
    ]
