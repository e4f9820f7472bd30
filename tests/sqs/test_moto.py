"""moto's server beside the gateway: the scenarios of all operations, in both protocols.

The gateway answers as AWS's documentation says. moto is a mock: where it answers otherwise, it is
listed here with the reason. A difference that is not listed fails, and so does a listed one that
moto has mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from moto.backends import get_backend
from moto.server import ThreadedMotoServer

from tests.support.gateway import Account
from tests.support.sqs import PROTOCOLS, clients, close
from tests.support.sqs_scenarios import SCENARIOS, TYPES, Scene

MOTO_ACCOUNT = "123456789012"
#: What is found where a scenario of moto ends, as a call fails that must not.
END = "the end"


@dataclass(frozen=True)
class Known:
    """How moto differs from AWS's documentation.

    Attributes:
        operation: The operation.
        what: What differs, as its scenario calls it.
        only: The protocol or type of queue, if it differs only there.
    """

    operation: str
    what: str
    only: str = ""

    def holds(self, operation: str, where: tuple[str, str]) -> bool:
        return operation == self.operation and (not self.only or self.only in where)


_BATCHES = (
    "EmptyBatchRequest",
    "TooManyEntriesInBatchRequest",
    "BatchEntryIdsNotDistinct",
    "InvalidBatchEntryId",
)
KNOWN = (
    # It has no message move tasks.
    Known("CancelMessageMoveTask", END),
    Known("ListMessageMoveTasks", END),
    Known("StartMessageMoveTask", END),
    # It does not know a handle any more when the message is deleted; AWS says that the message
    # is not in flight.
    Known("ChangeMessageVisibility", "a deleted message"),
    # It checks the entries of few batches; of one it compares handles before it counts them.
    *(Known("ChangeMessageVisibilityBatch", code) for code in _BATCHES),
    Known("DeleteMessageBatch", "TooManyEntriesInBatchRequest"),
    Known("DeleteMessageBatch", "InvalidBatchEntryId"),
    # It takes attributes of queues unchecked, and then finds that the queue is there.
    Known("CreateQueue", "an unknown attribute"),
    Known("CreateQueue", "a value out of range"),
    Known("CreateQueue", "a name of the other type", "fifo"),
    Known("SetQueueAttributes", "out of range"),
    Known("SetQueueAttributes", "unknown"),
    Known("SetQueueAttributes", "content", "standard"),
    Known("SetQueueAttributes", "type", "fifo"),
    # An empty handle is a parameter that is missing.
    Known("DeleteMessage", "an empty handle"),
    # Requests of the minute after a deletion may succeed, also a second one.
    Known("DeleteQueue", "again"),
    # Its times of queues have a fraction; AWS's are whole seconds.
    Known("GetQueueAttributes", "all names"),
    # Numbers and tags out of range are taken.
    Known("ListQueues", "too many results"),
    Known("TagQueue", "too many", "json"),
    # An answer without tags has no element for them.
    Known("ListQueueTags", "none", "json"),
    # It knows tags by a name that the last model of the Query protocol did not have.
    Known("ListQueueTags", END, "query"),
    Known("TagQueue", END, "query"),
    Known("UntagQueue", END, "query"),
    # It knows no attempts; and by Query not the newer name of a parameter.
    Known("ReceiveMessage", "the same attempt", "fifo"),
    Known("ReceiveMessage", "one message", "query"),
    # It takes messages that AWS refuses, so that more of them are there.
    Known("SendMessage", "an empty body"),
    Known("SendMessage", "a character"),
    Known("SendMessage", "an empty attribute"),
    Known("SendMessage", "a deduplication id", "standard"),
    Known("SendMessage", "counts", "standard"),
    # A duplicate gets an id of its own.
    Known("SendMessage", "a duplicate", "fifo"),
    # One message that is too long harms the whole batch.
    Known("SendMessageBatch", END),
)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """The URL of moto's server, which checks no signatures."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def client_of() -> Callable[..., Any]:
    return clients()


def differences(operation: str, scene: Scene) -> set[str]:
    """What a server answers otherwise than the scenario of an operation expects."""
    try:
        SCENARIOS[operation](scene)
    except (ClientError, ResponseParserError) as error:
        scene.differences[END] = (error, None)
    return set(scene.differences)


@dataclass(frozen=True)
class Servers:
    """The gateway and moto, for scenarios."""

    account: Account
    moto: str
    client_of: Callable[..., Any]

    def differences(self, operation: str, protocol: str, kind: str) -> tuple[set[str], set[str]]:
        """What the gateway answers otherwise than documented, and what moto does."""
        account = self.account
        key = {"aws_access_key_id": account.name, "aws_secret_access_key": account.key}
        ours = self.client_of(protocol, endpoint_url=account.url, **key)
        of_moto = self.client_of(protocol, endpoint_url=self.moto)
        for regions in get_backend("sqs").values():
            for backend in regions.values():
                backend.reset()
        here = differences(operation, Scene(ours, account.name, kind == "fifo"))
        there = differences(operation, Scene(of_moto, MOTO_ACCOUNT, kind == "fifo"))
        for client in (ours, of_moto):
            close(client)
        return here, there


@pytest.fixture
def servers(account: Account, moto: str, client_of: Callable[..., Any]) -> Servers:
    return Servers(account, moto, client_of)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("operation", sorted(SCENARIOS))
def test_moto_answers_as_the_gateway_but_for_what_is_known(
    operation: str, protocol: str, kind: str, servers: Servers
):
    here, there = servers.differences(operation, protocol, kind)

    assert here == set()
    known = [each for each in KNOWN if each.holds(operation, (protocol, kind))]
    assert there == {each.what for each in known}


def test_what_is_known_names_operations_that_there_are():
    assert {each.operation for each in KNOWN} <= SCENARIOS.keys()
