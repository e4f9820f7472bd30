"""The queue for any Python program: put, receive and settle messages without Spark.

    put: values -> Arrow batches -> block -> publish (1 LWT per call, or per producer's batch)
    receive: lease (1 LWT; none without messages) -> find -> fetch -> messages with receipts
    settle: receipts -> ranges by lease -> settlement (1 LWT per lease)
    exchange: receipts of one group, of any leases, and the next lease (1 LWT for all of it)

| event | result |
|---|---|
| the answer to a put is lost | a serial read shows if it was applied; if not, it is tried again |
| a producer's publish fails | every future of its batch has the error |
| the program dies with messages | they are due again when their lease runs out |
| a receive can't read its messages | they are due again in a minute, and count as delivered |
| a receive is cancelled after its lease | its messages are due again at once, uncounted |
| a receipt whose lease is over | returned as stale; nothing changes |
"""

from __future__ import annotations

from cassieq_spark.client.async_client import AsyncClient, AsyncProducer
from cassieq_spark.client.client import Client
from cassieq_spark.client.settling import Action
from cassieq_spark.consumer.message import Message, StoredMessage
from cassieq_spark.consumer.prefetch import DEFAULT_BUDGET, PrefetchBudget
from cassieq_spark.dead_letters.letters import DeadLetter
from cassieq_spark.dead_letters.stopped import Stopped
from cassieq_spark.dead_letters.survey import Survey
from cassieq_spark.groups.history import HistoryEvent, plain_event
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.producer.new_message import Headers, NewMessage
from cassieq_spark.producer.producer import Producer
from cassieq_spark.schedules import Runner, Schedule, ScheduleProgress
from cassieq_spark.schedules.plain import plain_progress, plain_schedule

__all__ = [
    "DEFAULT_BUDGET",
    "Action",
    "AsyncClient",
    "AsyncProducer",
    "Client",
    "DeadLetter",
    "Headers",
    "HistoryEvent",
    "LeaseRequest",
    "Message",
    "NewMessage",
    "PrefetchBudget",
    "Producer",
    "Runner",
    "Schedule",
    "ScheduleProgress",
    "Stopped",
    "StoredMessage",
    "Survey",
    "plain_event",
    "plain_progress",
    "plain_schedule",
]
