"""Queue URLs and ARNs, each of which names a queue of an account."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from cassieq_spark.errors import OptionError
from cassieq_spark.http.sqs.errors import InvalidAddress, InvalidParameterValue, QueueDoesNotExist
from cassieq_spark.http.sqs.texts import remembered

_LONGEST = 2_000
#: Names of accounts, and of queues with the group of a reader behind a tilde.
_NAME = re.compile(r"[A-Za-z0-9._~-]{1,400}")
_ARN = re.compile(
    r"arn:aws[a-z-]*:sqs:(?P<region>[A-Za-z0-9-]{0,64}):(?P<account>[^:/]+):(?P<queue>[^:/]+)"
)


class QueueAddress(NamedTuple):
    """A queue of an account.

    >>> QueueAddress("acme", "orders").url("https://queues.example")
    'https://queues.example/acme/orders'
    """

    account: str
    queue: str

    def url(self, base: str) -> str:
        """The queue URL at an address such as ``https://host:port``."""
        return f"{base}/{quote(self.account)}/{quote(self.queue)}"

    def arn(self, region: str) -> str:
        """The ARN; any region names the same queue."""
        return f"arn:aws:sqs:{region}:{self.account}:{self.queue}"


def check_base(url: str) -> str:
    """Check the base of queue URLs that an operator gives, and remove slashes at its end.

    >>> check_base("https://queues.example/")
    'https://queues.example'

    Raises:
        OptionError: The text cannot be the base of queue URLs.
    """
    try:
        parts = urlsplit(url)
        is_base = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_base = False
    if not is_base or "?" in url or "#" in url:
        raise OptionError(f"--sqs-url must be such as https://queues.example, not {url!r}")
    return url.rstrip("/")


@remembered
def address_in(url: str) -> QueueAddress:
    """The queue that a queue URL names by the last two segments of its path.

    The host is ignored: clients keep URLs that they got under another name of the host.

    >>> address_in("http://localhost:8080/acme/orders")
    QueueAddress(account='acme', queue='orders')

    Raises:
        InvalidAddress: The path has fewer than two segments.
        QueueDoesNotExist: No account or queue can have this name.
    """
    try:
        path = urlsplit(url).path if len(url) <= _LONGEST else ""
    except ValueError:
        path = ""
    address = address_of_path(path)
    if address is None:
        raise InvalidAddress.of(url)
    return address


@remembered
def address_of_path(path: str) -> QueueAddress | None:
    """The queue that the path of a request names; None if it has fewer than two segments.

    Raises:
        QueueDoesNotExist: No account or queue can have this name.
    """
    if len(path) > _LONGEST:
        raise QueueDoesNotExist
    segments = [each for each in path.split("/") if each]
    if len(segments) < 2:  # noqa: PLR2004 (account and queue)
        return None
    account, queue = (unquote(each) for each in segments[-2:])
    if not (_NAME.fullmatch(account) and _NAME.fullmatch(queue)):
        raise QueueDoesNotExist
    return QueueAddress(account, queue)


def address_in_arn(parameter: str, arn: str) -> QueueAddress:
    """The queue that an ARN names, whatever its region.

    Raises:
        InvalidParameterValue: The text, which ``parameter`` has, is no ARN of a queue.
    """
    found = _ARN.fullmatch(arn) if len(arn) <= _LONGEST else None
    if found is None or not (
        _NAME.fullmatch(found["account"]) and _NAME.fullmatch(found["queue"])
    ):
        raise InvalidParameterValue.of(arn, parameter, "It is not the ARN of a queue.")
    return QueueAddress(found["account"], found["queue"])
