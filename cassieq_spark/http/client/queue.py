"""A client of one queue of an account, over HTTP."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self, TypeVar, Unpack

import httpx

from cassieq_spark.arguments import (
    A_MOMENT,
    AT_ONCE,
    check_attempt,
    check_count,
    check_duration,
    check_flag,
    check_instant,
    check_text,
    shown,
)
from cassieq_spark.consumer.message import Message, StoredMessage
from cassieq_spark.dead_letters.purge import PurgeReport
from cassieq_spark.dead_letters.redrive import RedriveReport
from cassieq_spark.dead_letters.stopped import Resume, Stopped
from cassieq_spark.errors import CassieqError, OptionError
from cassieq_spark.groups.history import HistoryEvent
from cassieq_spark.http import DEFAULT_GROUP
from cassieq_spark.http.accounts.account import check_account, full_name
from cassieq_spark.http.accounts.signing import sign_request
from cassieq_spark.http.client import answers
from cassieq_spark.http.client.answers import CLOSED, HttpError, HttpSurvey
from cassieq_spark.http.client.encoding import (
    body_sent,
    delay_sent,
    encoded,
    headers_sent,
    idempotency_sent,
    json_of,
    lines_sent,
    new_message_sent,
    receipt_of,
)
from cassieq_spark.model import Position, Positions, QueueDefinition, Range, validate_name
from cassieq_spark.processes import importing
from cassieq_spark.producer.new_message import Headers, NewMessage, Value, message_given
from cassieq_spark.queues.attributes import check_changes
from cassieq_spark.queues.stats import GroupStats, QueueStats
from cassieq_spark.schedules import Schedule, ScheduleProgress
from cassieq_spark.schemas.ddl import ddl_of
from cassieq_spark.settings.position import StartingPosition, check_position, show_position
from cassieq_spark.settings.queue import (
    ALTERABLE,
    CHOSEN,
    QueueChanges,
    QueueSettings,
    http_settings_given,
    takes,
)
from cassieq_spark.settings.schedule import (
    ScheduleChanges,
    ScheduledValue,
    ScheduleSettings,
    schedule_sent,
    takes_settings,
)
from cassieq_spark.settings.verbs import VERBS, MessageVerbs, Received

T = TypeVar("T")

_TIMEOUT = timedelta(seconds=40)
_BUSY = {429, 503}
_LINES = "application/x-ndjson"
_LONGEST_SELECTION = 1 << 20
# Above a limit, httpcore closes idle connections, even one that another thread has just picked.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)


class HttpQueue(MessageVerbs):
    """One queue of an account. Safe to use from many threads, and across a fork.

    The methods have the names and results of the methods of `Client`, without the name of the
    queue. Values are always bytes: a JSON object if the queue has a schema. Pickling, as in a
    closure that Spark sends to its tasks, keeps the settings and the key; the copy connects where
    it is used.

    Example::

        with HttpQueue("http://127.0.0.1:8080", "acme", "orders", key=KEY) as orders:
            orders.put("hello")
            for message in orders.receive(max=10, wait=timedelta(seconds=20)):
                orders.ack(message)

    Every method raises:

    - `OptionError` or `MessageError`, before anything is sent: an argument is not valid.
    - `NotFoundError`: the queue or the group does not exist.
    - `HttpStateError`: the queue or the group is not in the state that the method needs.
    - `HttpError`: the gateway refused, failed, or did not answer.

    Args:
        url: The gateway's URL.
        account: Name of the account.
        queue: Name of its queue.
        key: A key of the account.
        signed_url: Instead of a key, the query of a signed URL.
        sign: Sign path, query, headers and body of each request with the key, instead of sending
            the key.
        patience: How long a call retries while the gateway answers 429 or 503.
        ca_file: PEM file of the CAs of the gateway's certificate; None: the CAs that the machine
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
        full_name(check_account(account), queue)
        self._account, self._queue = account, queue
        self._key, self._sign = key, sign
        self._again = partial(
            type(self),
            url,
            account,
            queue,
            key=key,
            signed_url=signed_url,
            sign=sign,
            patience=patience,
            ca_file=ca_file,
        )
        self._query = dict(httpx.QueryParams(signed_url)) if signed_url else {}
        self._path = f"/api/v1/accounts/{account}/queues/{queue}"
        self._patience = patience.total_seconds()
        # Without TLS, the CAs of the machine are not read, which would take a while.
        self._url, encrypted = url, _checked_url(url).startswith("https:")
        try:
            self._verify = ssl.create_default_context(cafile=ca_file) if encrypted else False
        except (OSError, ValueError) as error:
            raise OptionError(
                f"ca_file {ca_file!r} has no certificates of CAs: {error}"
            ) from error
        self._closed = False
        # Kept by process: connections that a fork has copied are the parent's.
        self._by_process: dict[int, httpx.Client] = {}

    def __reduce__(self) -> tuple[Callable[[], HttpQueue], tuple[()]]:
        """Pickle the settings, with the key or signed URL; the copy connects where it is used."""
        return self._again, ()

    @takes(CHOSEN, defaults=False)
    def create(self, *, drop_dead: bool | None = None, **settings: Unpack[QueueSettings]) -> bool:
        """Create the queue, and its dead-letter queue; see `Client.create_queue`.

        A setting that is not given gets the default of `Client.create_queue`. If the queue exists,
        only the given settings are compared.

        Returns:
            True if the queue was created; False if it exists with these settings.

        Raises:
            HttpStateError: The queue exists with other settings, which the error names.
            HttpError: The gateway refused. With status 504 the queue may be created: a repeated
                call completes it.
        """
        sent = _settings_sent(settings)
        if drop_dead is not None:
            sent["dropDead"] = check_flag("drop_dead", drop_dead)
        body = {"queueName": self._queue} | sent
        return self._ask("POST", None, answers.is_created, content=json_of(body))

    @takes(ALTERABLE, defaults=False)
    def alter(
        self, *, drop_dead: bool = False, **changes: Unpack[QueueChanges]
    ) -> QueueDefinition:
        """Alter the queue; settings that are not given stay. See `Client.alter_queue`."""
        sent = _settings_sent(changes)
        if check_flag("drop_dead", drop_dead):
            sent["dropDead"] = True
        return self._ask("PATCH", "", answers.definition_of, content=json_of(sent))

    def attributes(self) -> dict[str, str]:
        """The attributes of the queue; see `Client.attributes`."""
        return self._ask("GET", "/attributes", answers.field_of("attributes", dict))

    def set_attributes(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Set attributes of the queue; None removes one. See `Client.set_attributes`."""
        check_changes(changes)
        parse = answers.field_of("attributes", dict)
        sent = json_of({"attributes": dict(changes)})
        return self._ask("PATCH", "/attributes", parse, content=sent)

    def pause(self) -> bool:
        """Let nobody receive messages; False if already paused. See `Client.pause_queue`."""
        return self._ask("POST", "/pause", answers.field_of("changed", bool))

    def resume(self) -> bool:
        """Let everybody receive messages again; False if the queue was not paused."""
        return self._ask("POST", "/resume", answers.field_of("changed", bool))

    def definition(self) -> QueueDefinition:
        """The definition of the queue, with the newest version of its schema only."""
        return self._ask("GET", "", answers.definition_of)

    def stats(self) -> QueueStats:
        """Count the messages of the queue and of its groups, exactly; see `Client.stats`."""
        return self._ask("GET", "/statistics", answers.stats_of)

    def delete(self, *, force: bool = False) -> None:
        """Delete the queue and its messages; see `Client.delete_queue`.

        With ``force``, the queue is deleted even if readers hold messages, or if other queues send
        dead letters to it.

        Raises:
            HttpError: The gateway refused. With status 504 the queue may be deleted: a repeated
                call may raise `NotFoundError`.
        """
        return self._ask("DELETE", "", answers.nothing, query=_force(force))

    def purge(self, *, force: bool = False) -> QueueDefinition:
        """Delete all messages of the queue; return its definition, with its next version.

        See `Client.purge_queue`. With ``force``, messages are deleted even if readers hold some.
        """
        return self._ask("POST", "/purge", answers.definition_of, query=_force(force))

    def put(  # noqa: PLR0913 (each is a property of the message, by name)
        self,
        value: Value | NewMessage,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
        unique_id: bytes | str | None = None,
        idempotency_key: str | None = None,
    ) -> Position | None:
        """Put a message. Puts of many programs share an LWT.

        Args:
            value: The body; if the queue has a schema, a dict of its columns, or a JSON object.
                Alternatively a `NewMessage`, without other arguments.
            key: The key of the message.
            headers: The headers of the message.
            delay: The shortest time from publication to delivery.
            visible_at: The earliest time of delivery; aware.
            unique_id: See `Client.put`.
            idempotency_key: Calls under the same key publish the message once; each such message
                takes an LWT of its own.

        Returns:
            The position of the message, a number: its monoton in its partition. The message is
            then published and durable. If a message with its unique id existed, the position of
            the existing message. None if the message was put before under its idempotency key.

        Raises:
            HttpError: The gateway refused. With status 504, or without an answer (status 0), the
                outcome is unknown: repeat the put only under an idempotency key.
            HttpStateError: The key was used for other messages; nothing was put.
        """
        new = message_given(
            value,
            key=key,
            headers=headers,
            delay=delay,
            visible_at=visible_at,
            unique_id=unique_id,
        )
        query = delay_sent(new.delay, new.visible_at)
        body = body_sent(new.value, "the value of the message")
        sent = headers_sent(new.headers) | idempotency_sent(idempotency_key)
        if new.key is not None:
            query["key"], query["keyEncoding"] = encoded(new.key, "the key of the message")
        if new.unique_id is not None:
            what = "the unique id of the message"
            query["uniqueId"], query["uniqueIdEncoding"] = encoded(new.unique_id, what)
        return self._ask(
            "POST", "/messages", answers.position_of, query=query, headers=sent, content=body
        )

    def put_many(
        self,
        messages: Iterable[Value | NewMessage],
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Range | Positions | None:
        """Put several messages atomically: all become visible together, or none does. One LWT.

        Args:
            messages: Values, or messages with keys and headers.
            delay: The shortest time from publication to delivery.
            visible_at: The earliest time of delivery; aware.
            idempotency_key: Calls under the same key publish the messages once.

        Returns:
            The monotons of the messages, in order; if the queue has several partitions, by
            partition, and then each partition's messages become visible separately. None if all
            messages were put before under their idempotency key. If an earlier attempt has put
            some of them, only the monotons of the others.

        Raises:
            HttpError: See `put`.
        """
        query = delay_sent(delay, visible_at)
        sent = {"Content-Type": _LINES} | idempotency_sent(idempotency_key)
        body = lines_sent(messages)
        return self._ask(
            "POST",
            "/messages/batch",
            answers.positions_of,
            query=query,
            headers=sent,
            content=body,
        )

    def receive(
        self,
        group: str = DEFAULT_GROUP,
        *,
        max: int = 1,  # noqa: A002 (the word that a user looks for)
        wait: timedelta = AT_ONCE,
        lease: timedelta | None = None,
        attempt: str | None = None,
    ) -> list[Message]:
        """Lease messages; see `Client.receive`.

        Args:
            group: Name of the consumer group; only the group ``default`` need not be created.
            max: Most messages.
            wait: How long to wait for the first message.
            lease: How long messages are leased; None: for the queue's lease time.
            attempt: A name for this receive: a repetition under the same name, after a lost
                answer, gets the messages that the first attempt holds. Costs an LWT of its own.

        Returns:
            Messages in the order of their monotons; empty if none came in time.
        """
        check_count("max", max)
        validate_name("group", group)
        query: dict[str, Any] = {
            "max": max,
            "group": group,
            "wait": check_duration("wait", wait).total_seconds(),
        }
        if lease is not None:
            check_duration("lease", lease, least=A_MOMENT)
            query["invisibilityTimeSeconds"] = lease.total_seconds()
        if attempt is not None:
            query["attempt"] = check_attempt(attempt)
        parse = answers.messages_of(self._queue, group)
        return self._ask("POST", "/messages/receive", parse, query=query, wait=query["wait"])

    def peek(
        self,
        *,
        max: int = 10,  # noqa: A002 (the word that a user looks for)
        start: StartingPosition = "earliest",
    ) -> list[StoredMessage]:
        """Read at most 100 messages without leasing them; see `Client.peek`."""
        query = {"max": check_count("max", max), "start": _position(start)}
        return self._ask("GET", "/messages", answers.all_stored_of(self._queue), query=query)

    def message(self, monoton: int, *, partition: int | None = None) -> StoredMessage:
        """Read one message by its position, even if leased or settled; see `Client.message`.

        Raises:
            NotYetError: No message has this position yet.
            DeletedError: The message was settled by every group, or expired, and is deleted.
        """
        parse = answers.stored_of(self._queue)
        return self._ask("GET", _message(monoton), parse, query=_partition(partition))

    def history(self, monoton: int, *, partition: int | None = None) -> list[HistoryEvent]:
        """Read who got, extended, released, acked or rejected a message; see `Client.history`."""
        path = _message(monoton) + "/history"
        return self._ask("GET", path, answers.history_of, query=_partition(partition))

    def replace(
        self,
        message: Message | str,
        value: Value,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta = AT_ONCE,
    ) -> list[str]:
        """Put another message, at the end of the queue, and ack this one; see `Client.replace`.

        Returns:
            The receipt, if it is stale, and then nothing was put; else empty.
        """
        check_duration("delay", delay)
        new = new_message_sent(NewMessage(value, key, headers))
        body = json_of({**new, "newInvisibilitySeconds": delay.total_seconds()})
        query = {"popReceipt": receipt_of(message)}
        return self._ask("PUT", "/messages", answers.replaced_of, query=query, content=body)

    def groups(self) -> list[GroupStats]:
        """List the consumer groups of the queue, by name, with their counts."""
        return self._ask("GET", "/groups", answers.groups_of)

    def create_group(self, group: str, start: StartingPosition = "earliest") -> None:
        """Create a consumer group before its first reader does; see `Client.create_group`.

        Raises:
            HttpError: The gateway refused. With status 504 the group may be created: a repeated
                call may raise `HttpStateError`, because the group exists.
        """
        body = json_of({"start": _position(start)})
        return self._ask("PUT", _group(group), answers.nothing, content=body)

    def seek_group(
        self,
        group: str,
        to: StartingPosition,
        *,
        partition: int | None = None,
        force: bool = False,
    ) -> int:
        """Move a group to another position; see `Client.seek_group`."""
        sent = {"to": _position(to), "force": check_flag("force", force), **_partition(partition)}
        return self._ask(
            "POST", _group(group) + "/seek", answers.field_of("next", int), content=json_of(sent)
        )

    def stopped(self, group: str) -> list[Stopped]:
        """Show the dead messages at which a group has stopped; see `Client.stopped`."""
        return self._ask("GET", _group(group) + "/stopped", answers.stopped_of)

    def resume_group(self, group: str, how: Resume | str, *, partition: int | None = None) -> int:
        """Let a group that has stopped at dead messages continue; return how many were dead.

        See `Client.resume_group`. ``how`` is "retry" or "dead-letter"; dropping messages needs a
        `Client`.

        Raises:
            HttpError: The gateway refused. With status 504 the group may be resumed, in some or
                all partitions: repeat the call, which counts the rest.
        """
        body = json_of({"how": how, **_partition(partition)})
        return self._ask(
            "POST", _group(group) + "/resume", answers.field_of("resumed", int), content=body
        )

    def delete_group(self, group: str, *, force: bool = False) -> bool:
        """Delete a group; return False if it did not exist. See `Client.delete_group`."""
        return self._ask("DELETE", _group(group), answers.is_deleted, query=_force(force))

    def dead_letters(
        self,
        *,
        group: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> HttpSurvey:
        """Find dead letters; see `Client.dead_letters`."""
        criteria = {
            "group": None if group is None else check_text("group", group),
            "reason": None if reason is None else check_text("reason", reason),
            "since": None if since is None else check_instant("since", since).isoformat(),
            "until": None if until is None else check_instant("until", until).isoformat(),
            "limit": None if limit is None else check_count("limit", limit),
        }
        query = {name: given for name, given in criteria.items() if given is not None}
        return self._ask("GET", "/dead", answers.survey_of, query=query)

    def redrive(
        self,
        found: HttpSurvey,
        *,
        to: str | None = None,
        force: bool = False,
        drop_columns: bool = False,
    ) -> RedriveReport:
        """Publish dead letters again, each once, and settle them; see `Client.redrive`.

        ``found`` is a result of `dead_letters`. ``to`` is a queue of the same account.

        Raises:
            HttpError: The gateway refused. With status 504 some may be redriven: find the dead
                letters again, and redrive the rest.
        """
        query = _force(force)
        query["dropColumns"] = "true" if check_flag("drop_columns", drop_columns) else "false"
        if to is not None:
            query["to"] = check_text("to", to)
        body = _selection(found)
        if not found.groups:
            return RedriveReport({}, 0, is_stopped=False)
        return self._ask("POST", "/dead/redrive", answers.redriven_of, query=query, content=body)

    def purge_dead_letters(self, found: HttpSurvey) -> PurgeReport:
        """Settle for good the dead letters that `dead_letters` found.

        Raises:
            HttpError: The gateway refused. With status 504 some may be settled: find the dead
                letters again, and purge the rest.
        """
        body = _selection(found)
        if not found.groups:
            return PurgeReport(0, 0, is_stopped=False)
        return self._ask("POST", "/dead/purge", answers.purged_of, content=body)

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _http(self) -> httpx.Client:
        """The connections of this process; made with its first request."""
        pid = os.getpid()
        if (found := self._by_process.get(pid)) is None:
            # httpx imports modules when a client is made.
            with importing:
                made = httpx.Client(base_url=self._url, verify=self._verify, limits=LIMITS)
            found = self._by_process.setdefault(pid, made)
        return found

    def _settle(
        self, verb: str, messages: Sequence[Received | str], value: timedelta | str | None = None
    ) -> list[str]:
        declared = VERBS[verb]
        body: dict[str, object] = {"popReceipts": [receipt_of(each) for each in messages]}
        checked, parameter = declared.check(value), declared.parameter
        if parameter is not None:
            body[parameter.by_http] = parameter.plain(checked)
        if not messages:
            return []
        parse = answers.field_of("stale", list)
        return self._ask("POST", f"/messages/{verb}", parse, content=json_of(body))

    @takes_settings()
    def create_schedule(
        self, name: str, message: ScheduledValue, **settings: Unpack[ScheduleSettings]
    ) -> Schedule:
        """Create a schedule, which puts a message again and again; see `Client.create_schedule`.

        A gateway with ``--schedules``, or ``cassieq schedule run``, must run. ``every`` is at
        least ten seconds.

        Raises:
            HttpStateError: The queue has a schedule of that name.
        """
        body = schedule_sent({**settings, "message": message})
        parse = answers.schedule_of(self._queue)
        return self._ask("PUT", _schedule(name), parse, content=json_of(body))

    @takes_settings(alters=True)
    def alter_schedule(self, name: str, **changes: Unpack[ScheduleChanges]) -> Schedule:
        """Alter a schedule; settings that are not given stay. See `Client.alter_schedule`."""
        body = schedule_sent(changes, alters=True)
        parse = answers.schedule_of(self._queue)
        return self._ask("PATCH", _schedule(name), parse, content=json_of(body))

    def schedules(self) -> list[ScheduleProgress]:
        """List the schedules of the queue, by name, and how late they are."""
        return self._ask("GET", "/schedules", answers.schedules_of(self._queue))

    def schedule(self, name: str, *, ticks: int = 5) -> ScheduleProgress:
        """Show a schedule: its last tick, its next ones, and how late it is."""
        query = {"ticks": check_count("ticks", ticks, least=0)}
        parse = answers.progress_of(self._queue)
        return self._ask("GET", _schedule(name), parse, query=query)

    def pause_schedule(self, name: str) -> bool:
        """Let a schedule put nothing until it is resumed; False: it was paused already."""
        return self._ask("POST", _schedule(name) + "/pause", answers.field_of("changed", bool))

    def resume_schedule(self, name: str) -> bool:
        """Let a paused schedule go on; False: it was not paused."""
        return self._ask("POST", _schedule(name) + "/resume", answers.field_of("changed", bool))

    def run_schedule_now(self, name: str) -> Position:
        """Put a message of a schedule at once; see `Client.run_schedule_now`."""
        return self._ask("POST", _schedule(name) + "/run", answers.put_at)

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule; what it has put stays."""
        return self._ask("DELETE", _schedule(name), answers.nothing)

    def _ask(
        self, method: str, rest: str | None, parse: Callable[[httpx.Response], T], **more: Any
    ) -> T:
        """Send a request, and read the answer with ``parse``; ``more`` are parts of the request.

        Retry while the gateway's answers allow it (429, 503). ``rest`` is the path below the
        queue's path; None: the path of all queues. Methods return the result of this method, which
        is a coroutine if `AsyncHttpQueue` calls them.
        """
        end = time.monotonic() + self._patience
        if self._closed:
            raise CassieqError(CLOSED)
        while True:
            request = self._request(self._http, method, rest, **more)
            try:
                answer = self._http.send(request)
            except httpx.HTTPError as error:
                raise no_answer(error) from error
            pause = pause_after(answer, end)
            if pause is None:
                return parse(answer)
            time.sleep(pause)

    def _request(  # noqa: PLR0913 (the parts of a request, by name)
        self,
        http: httpx.Client | httpx.AsyncClient,
        method: str,
        rest: str | None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        content: bytes | None = None,
        wait: float = 0.0,
    ) -> httpx.Request:
        """Build a request; each attempt is signed anew, because a signature is accepted once."""
        path = self._path.rpartition("/")[0] if rest is None else self._path + rest
        try:
            request = http.build_request(
                method,
                path,
                params={**self._query, **(query or {})},
                headers=_raw(headers or {}),
                timeout=_TIMEOUT.total_seconds() + wait,
                content=content,
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise OptionError(f"the request cannot be sent: {error}") from error
        if self._key is not None and not self._sign:
            request.headers["Authorization"] = f"Key {self._key}"
        elif self._key is not None:
            # The path as the gateway sees it: a proxy may have removed a prefix from the URL's.
            signed = sign_request(
                self._key,
                self._account,
                request.method,
                path,
                datetime.now(UTC),
                query=request.url.query,
                headers=request.headers.raw,
                body=request.content,
            )
            request.headers.update(signed)
        return request


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


def no_answer(error: httpx.HTTPError) -> HttpError:
    """The error of a request without an answer."""
    return HttpError(f"the gateway did not answer: {error}")


def pause_after(answer: httpx.Response, end: float) -> float | None:
    """Seconds until the next attempt, if it can begin before ``end``; None: no further attempt."""
    if answer.status_code not in _BUSY:
        return None
    seconds = answer.headers.get("Retry-After", "")
    pause = float(seconds) if seconds.isdecimal() else 1.0
    return pause if time.monotonic() + pause <= end else None


def _raw(headers: Mapping[str, bytes | str]) -> list[tuple[bytes, bytes]]:
    return [
        (name.encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in headers.items()
    ]


def _force(force: object) -> dict[str, Any]:
    return {"force": "true" if check_flag("force", force) else "false"}


def _settings_sent(given: QueueChanges) -> dict[str, Any]:
    """Convert settings that a program gives to the form of a request's body."""
    target, schema = given.get("dead_letter_queue"), given.get("schema")
    if target is not None:
        validate_name("queue", target)
    return http_settings_given({**given, "schema": ddl_of(schema)})


def _partition(partition: int | None) -> dict[str, int]:
    if partition is None:
        return {}
    return {"partition": check_count("partition", partition, least=0)}


def _position(position: StartingPosition) -> str:
    return show_position(check_position(position))


def _schedule(name: str) -> str:
    return "/schedules/" + validate_name("schedule", name)


def _message(monoton: int) -> str:
    return f"/messages/{check_count('monoton', monoton, least=0)}"


def _group(group: str) -> str:
    return "/groups/" + validate_name("group", group)


def _selection(found: object) -> bytes:
    """The body that selects dead letters."""
    if not isinstance(found, HttpSurvey):
        raise OptionError(f"found must be what dead_letters returned, not {shown(found)}")
    monotons = str(found.monotons)
    if len(monotons) > _LONGEST_SELECTION:
        raise OptionError(
            "these dead letters are at too many places for one request: find fewer, by limit"
        )
    return json_of({"queueId": found.queue_id, "monotons": monotons})
