"""What becomes of messages that were received, as methods of the client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial

from cassieq_spark.arguments import A_MOMENT, AT_ONCE, check_duration, check_text
from cassieq_spark.client.calls import Calls
from cassieq_spark.client.received import Message
from cassieq_spark.client.settlement import by_lease, replace_one, settle_each, settle_one
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import Ranges
from cassieq_spark.producer.new_message import Headers, NewMessage, check_message, message_limit
from cassieq_spark.store.protocol import Store

_REASON_LENGTH = 1000


class Settling:
    """The part of `Client` that settles."""

    _store: Store
    _calls: Calls

    def ack(self, *messages: Message | str) -> list[str]:
        """Settle messages: they are done. One LWT for each lease, and a few reads.

        Args:
            messages: Messages or their receipts, of any leases and queues.

        Returns:
            The receipts that were stale: of messages whose lease ran out and that others have or
            are to get, or that were settled before. Nothing happened to those.

        Raises:
            MessageError: One of them is no message and no receipt; nothing is settled.
            QueueStateError: One of their queues or groups does not exist.
            StoreError: Cassandra failed; it does no harm to repeat the call.
        """
        return self._settle(messages, lambda monotons: Settlement(acked=monotons))

    def release(self, *messages: Message | str, delay: timedelta = AT_ONCE) -> list[str]:
        """Give messages back, to be delivered again. One LWT for each lease; see `ack`.

        Args:
            messages: Messages or their receipts, of any leases and queues.
            delay: How much later they are delivered again, at the earliest.

        Raises:
            OptionError: The delay is out of range.
        """
        check_duration("delay", delay)
        return self._settle(messages, lambda monotons: Settlement(released={delay: monotons}))

    def extend(self, *messages: Message | str, by: timedelta) -> list[str]:
        """Hold messages longer: until ``by`` from now on. One LWT for each lease; see `ack`.

        Args:
            messages: Messages or their receipts, of any leases and queues.
            by: How long from now on.

        Raises:
            OptionError: ``by`` is out of range.
        """
        check_duration("by", by, least=A_MOMENT)
        return self._settle(messages, lambda monotons: Settlement(extended={by: monotons}))

    def reject(self, *messages: Message | str, reason: str) -> list[str]:
        """Dead-letter messages, however often they were delivered. Three LWTs for each lease.

        See `ack`. They are dropped if the queue has no dead-letter queue.

        Args:
            messages: Messages or their receipts, of any leases and queues.
            reason: What is wrong with them, for whoever looks at the dead letters; its first
                thousand characters are kept.

        Raises:
            OptionError: The reason is empty.
        """
        reason = check_text("reason", reason)
        if not reason.strip():
            raise OptionError("a message is rejected for a reason: say what is wrong with it")
        reason = reason[:_REASON_LENGTH]
        return self._settle(messages, lambda monotons: Settlement(rejected={reason: monotons}))

    def replace(
        self,
        message: Message | str,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta = AT_ONCE,
    ) -> list[str]:
        """Put another message, at the end of the queue, and ack this one. Three LWTs; see `ack`.

        Nothing is put for a message that is stale. A crash half way leaves both; so may a lease
        that runs out meanwhile, which is in the log.

        Args:
            message: The message or its receipt.
            value: Body of the new one.
            key: Key of the new one; the old one's is not taken over.
            headers: Headers of the new one; the old one's are not taken over.
            delay: How much later it is delivered, at the earliest.

        Raises:
            MessageError: The queue does not take such a message.
            OptionError: The delay is out of range.
        """
        check_duration("delay", delay)
        leases = by_lease([message])
        (queue,) = (lease.queue for lease in leases)
        new = check_message(NewMessage(value, key, headers), limit=message_limit(queue))
        with self._calls:
            return settle_each(
                self._store, leases, partial(replace_one, self._store, new=new, delay=delay)
            )

    def _settle(
        self,
        messages: Iterable[Message | str],
        settlement_of: Callable[[Ranges], Settlement],
    ) -> list[str]:
        leases = by_lease(messages)
        with self._calls:
            return settle_each(
                self._store, leases, partial(settle_one, self._store, settlement_of)
            )
