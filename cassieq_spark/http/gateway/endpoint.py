"""What an endpoint is, and what its handler is given: one declaration for routes and OpenAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from cassieq_spark.errors import OptionError
from cassieq_spark.http.accounts import Level, full_name
from cassieq_spark.http.gateway.access import ACCOUNT, Grant
from cassieq_spark.http.gateway.budgets import Sender
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.headers import query_of
from cassieq_spark.http.gateway.payloads import Nothing
from cassieq_spark.http.gateway.refusals import RefusedError

P = TypeVar("P", bound=BaseModel)

#: Where the queues of an account are.
QUEUES = "/api/v1/accounts/{account}/queues"
QUEUE = QUEUES + "/{queue}"
ADMIN = "/admin/api/v1"


@dataclass(slots=True)
class Call:
    """One request, as its handler sees it.

    Attributes:
        gateway: What serves it.
        request: The request itself.
        sender: Who sends it.
        names: What is in the path.
        query: Its parameters.
        grant: What who asks may do; None: an administrator asks.
        body: As it came; empty if the endpoint takes none.
    """

    gateway: Gateway
    request: Request
    sender: Sender
    names: Mapping[str, str]
    query: Any
    grant: Grant | None
    body: bytes = b""

    @property
    def account(self) -> str:
        """Which account."""
        return self.names["account"]

    @property
    def scope(self) -> str:
        """Whose its idempotency key is, if it has one."""
        return ACCOUNT if self.grant is None else self.grant.scope

    def may(self, level: Level) -> bool:
        """Whether who asks has another right, too."""
        return self.grant is None or level in self.grant.levels

    def covers(self, queue: str) -> bool:
        """Whether the sender may do the same with another queue, named without the account."""
        return self.grant is None or self.grant.covers(queue)

    @property
    def queue(self) -> str:
        """Which queue, by the name that Spark and the client know."""
        return self.queue_named(self.names["queue"], 404)

    def queue_named(self, name: str, status: int = 400) -> str:
        """A queue of the same account.

        Raises:
            RefusedError: No queue of an account can be called so.
        """
        try:
            return full_name(self.account, name)
        except OptionError as error:
            raise RefusedError(str(error), status) from error

    def json(self, model: type[P]) -> P:
        """The body, read as JSON.

        Raises:
            RefusedError: 400; it is not JSON. 422; it is not what it should be.
        """
        try:
            return model.model_validate_json(self.body or b"{}")
        except ValidationError as error:
            is_json = error.errors()[0]["type"] != "json_invalid"
            raise RefusedError(_said(error, "body"), 422 if is_json else 400) from error


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One thing that can be asked for.

    Attributes:
        method: The verb.
        path: The path, with names in braces.
        operation: What it is called in errors, metrics and OpenAPI.
        summary: What it does, in a line.
        level: The right that it takes; None: the admin's key.
        handler: Does it.
        query: Parameters of its URL.
        body: What its body is: JSON of this model, or bytes of these media types.
        answers: Status codes with what they mean, besides those that any request may get.
        is_batch: Whether its body may be as large as that of a batch.
    """

    method: str
    path: str
    operation: str
    summary: str
    level: Level | None
    handler: Handler
    query: type[BaseModel] = Nothing
    body: type[BaseModel] | tuple[str, ...] | None = None
    answers: Mapping[int, str] = field(default_factory=dict)
    is_batch: bool = False

    def parse_query(self, request: Request) -> BaseModel:
        """The parameters of a request.

        Raises:
            RefusedError: 400; one of them is malformed, or missing.
        """
        try:
            return self.query.model_validate(query_of(request))
        except ValidationError as error:
            raise RefusedError(_said(error, "query")) from error


def _said(error: ValidationError, where: str) -> str:
    """What is wrong, with what was given left out, as it may be a secret."""
    problems = (
        f"{'.'.join(map(str, each['loc'])) or where}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)[:5]
    )
    return f"the {where} is not valid: " + "; ".join(problems)
