"""The verbs by which programs settle messages that they hold; each is declared once.

From `VERBS` follow `client.Action`, the endpoints of the gateway and the requests of its client,
the commands, and the operations of a write of receipts. All clients inherit the methods of
`MessageVerbs` or `AsyncMessageVerbs`. The effect of a verb on a group is defined by the verb's
field in a `Settlement`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol

from cassieq_spark.arguments import A_MOMENT, AT_ONCE, check_duration, check_text
from cassieq_spark.errors import OptionError

P = ParamSpec("P")

#: Most characters of a text that are kept.
LONGEST_TEXT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbParameter:
    """The parameter of a verb: a duration or a text.

    Attributes:
        name: The argument of the client's method, and the flag of the command.
        meaning: One sentence of explanation.
        by_http: Its name in JSON.
        column: The column with its value in a write of receipts, and the option for all rows.
        is_duration: True if the parameter is a duration; False if it is a text.
        default: The value if the parameter is left out; None: it must be given.
        least: The shortest duration.
        example: A value, for help and descriptions.
    """

    name: str
    meaning: str
    by_http: str
    column: str
    is_duration: bool = False
    default: timedelta | None = None
    least: timedelta = AT_ONCE
    example: timedelta | str

    def check(self, given: Any) -> Any:
        """Convert a given value to the type that a settlement has; None stands for the default.

        Raises:
            OptionError: The value is missing or of a wrong type, or out of range.
        """
        if given is None:
            given = self.default
        if self.is_duration:
            return check_duration(self.name, given, least=self.least)
        if not check_text(self.name, given).strip():
            raise OptionError(f"{self.name} is empty: say what is wrong with the messages")
        return given[:LONGEST_TEXT]

    def plain(self, value: Any) -> Any:
        """Convert a value to its form in JSON; a duration is in seconds."""
        return value.total_seconds() if self.is_duration else value


@dataclass(frozen=True, slots=True)
class Verb:
    """A way to settle messages.

    Attributes:
        name: The word for the verb on every surface.
        done: The state of the messages afterwards: the field of a `Settlement`, and the word in
            the output of commands.
        meaning: One sentence of explanation, for all surfaces.
        right: The letter of the right that the verb needs over HTTP.
        parameter: Its parameter; None: it has none.
    """

    name: str
    done: str
    meaning: str
    right: str
    parameter: VerbParameter | None = None

    def check(self, given: Any) -> Any:
        """Check the value of the parameter, and return it; None if the verb has no parameter.

        Raises:
            OptionError: The parameter refuses the value, or a value is given for a verb without a
                parameter.
        """
        if self.parameter is not None:
            return self.parameter.check(given)
        if given is not None:
            raise OptionError(f"{self.name!r} takes no value: leave it out")
        return None


VERBS = {
    each.name: each
    for each in (
        Verb("ack", "acked", "Ack messages: they are done.", "a"),
        Verb(
            "release",
            "released",
            "Release messages: they are delivered again, at once or after a delay.",
            "u",
            VerbParameter(
                name="delay",
                meaning="Delay before they are delivered again.",
                by_http="delaySeconds",
                column="delay",
                is_duration=True,
                default=AT_ONCE,
                example=timedelta(minutes=1),
            ),
        ),
        Verb(
            "extend",
            "extended",
            "Extend leases: nobody else gets the messages meanwhile.",
            "u",
            VerbParameter(
                name="by",
                meaning="How long to hold them from now on.",
                by_http="seconds",
                column="seconds",
                is_duration=True,
                least=A_MOMENT,
                example=timedelta(minutes=5),
            ),
        ),
        Verb(
            "reject",
            "rejected",
            "Dead-letter messages, however often they were delivered.",
            "a",
            VerbParameter(
                name="reason",
                meaning="What is wrong with them; it is in the dead letters.",
                by_http="reason",
                column="reason",
                example="no such customer",
            ),
        ),
    )
}


class Received(Protocol):
    """A message that this program holds: a `Message`, as a client received it."""

    @property
    def receipt(self) -> str:
        """Text with which any program can settle the message."""


class MessageVerbs(ABC):
    """The method of each verb, for `Client` and `HttpQueue`."""

    @abstractmethod
    def _settle(
        self, verb: str, messages: Sequence[Received | str], value: timedelta | str | None = None
    ) -> list[str]:
        """Settle messages by a verb, with the value of its parameter; return stale receipts."""

    def ack(self, *messages: Received | str) -> list[str]:
        """Settle messages: they are done. One LWT per lease, and a few reads.

        Threads of this process that receive or settle for the group at that moment share the LWT.

        Args:
            messages: Messages or their receipts, of any leases. `Client` takes messages of several
                queues, `HttpQueue` those of its queue.

        Returns:
            The stale receipts: the message was settled before, or its lease ended and it is due
            again or leased by others. Messages with stale receipts are not changed.

        Raises:
            MessageError: An argument is neither a message nor a receipt; nothing is settled.
            QueueStateError: One of the queues or groups does not exist.
            OutcomeUnknownError: Some of the messages may be settled; by `HttpQueue` it is an
                `HttpError` with status 504. The call is safe to repeat, but reports receipts that
                the first call settled as stale.
            StoreError: Cassandra failed, and nothing is settled; the call is safe to repeat.
            HttpError: Only `HttpQueue`: the gateway refused; the call is safe to repeat.
        """
        return self._settle("ack", messages)

    def release(self, *messages: Received | str, delay: timedelta = AT_ONCE) -> list[str]:
        """Release messages, which are delivered again, no earlier than after ``delay``; see `ack`.

        Raises:
            OptionError: The delay is out of range.
        """
        return self._settle("release", messages, delay)

    def extend(self, *messages: Received | str, by: timedelta) -> list[str]:
        """Extend leases, which then end ``by`` from now; see `ack`.

        Raises:
            OptionError: ``by`` is out of range.
        """
        return self._settle("extend", messages, by)

    def reject(self, *messages: Received | str, reason: str) -> list[str]:
        """Dead-letter messages, however often they were delivered. Three LWTs per lease.

        See `ack`. The messages are dropped if the queue has no dead-letter queue. The first
        thousand characters of ``reason`` are kept, and readers of the dead letters see them.

        Raises:
            OptionError: The reason is empty.
        """
        return self._settle("reject", messages, reason)


def _awaited(
    method: Callable[Concatenate[MessageVerbs, P], list[str]],
) -> Callable[Concatenate[AsyncMessageVerbs, P], Coroutine[Any, Any, list[str]]]:
    """Make a coroutine from a method, with its name, parameters, result and docstring."""

    async def call(self: AsyncMessageVerbs, /, *args: P.args, **kwargs: P.kwargs) -> list[str]:
        # The method returns what `_settle` returns, which is a coroutine here.
        verbs: Any = self
        settled: Any = method(verbs, *args, **kwargs)
        stale: list[str] = await settled
        return stale

    return wraps(method)(call)


class AsyncMessageVerbs(ABC):
    """The methods of `MessageVerbs` as coroutines, for `AsyncClient` and `AsyncHttpQueue`."""

    @abstractmethod
    async def _settle(
        self, verb: str, messages: Sequence[Received | str], value: timedelta | str | None = None
    ) -> list[str]:
        """Do what `MessageVerbs._settle` does."""

    ack = _awaited(MessageVerbs.ack)
    release = _awaited(MessageVerbs.release)
    extend = _awaited(MessageVerbs.extend)
    reject = _awaited(MessageVerbs.reject)
