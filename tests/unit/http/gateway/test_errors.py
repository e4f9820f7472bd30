from __future__ import annotations

import json
import logging

import pytest

from cassieq_spark import errors
from cassieq_spark.errors import CassieqError
from cassieq_spark.http.serving.errors import (
    FAILED,
    STORE_FAILED,
    RefusedError,
    answer_to,
    status_of,
)

STATUSES = {
    errors.CassieqError: 503,
    errors.OptionError: 400,
    errors.SetupError: 503,
    errors.SchemaError: 400,
    errors.MessageError: 400,
    errors.QueueStateError: 409,
    errors.NotFoundError: 404,
    errors.NotYetError: 404,
    errors.DeletedError: 404,
    errors.ExistsError: 409,
    errors.LeaseLostError: 409,
    errors.StoreError: 503,
    errors.ConnectError: 503,
    errors.MissingSchemaError: 503,
    errors.NotAppliedError: 503,
    errors.OutcomeUnknownError: 504,
    errors.ContentionError: 503,
    errors.ClockError: 503,
    errors.TooLargeError: 503,
    errors.BatchChangedError: 409,
    errors.SchemaChangedError: 409,
    errors.BatchOrderError: 409,
    errors.InvariantError: 500,
    errors.UnreadableError: 500,
    KeyError: 500,
}


@pytest.mark.parametrize("error", STATUSES)
def test_each_error_has_its_status(error: type[Exception]):
    assert status_of(error("why")) == STATUSES[error]


def test_an_answer_503_says_that_the_request_can_be_repeated_and_not_that_nothing_was_done():
    message = json.loads(answer_to(errors.ConnectError("no node"), "put", {}).body)["message"]

    assert message == "Cassandra does not answer, or refuses: repeat the request in a moment"


def test_no_error_of_ours_is_forgotten():
    ours = {
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, CassieqError)
    }

    assert ours <= STATUSES.keys()


def test_an_answer_says_what_was_asked_for_and_why_it_is_refused():
    answer = answer_to(RefusedError("too much", 429, {"Retry-After": "1"}), "put", {"a": "b"})

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert json.loads(answer.body) == {
        "reason": "Error",
        "operation": "put",
        "message": "too much",
        "a": "b",
    }


@pytest.mark.parametrize(
    ("error", "status", "action"),
    [
        (errors.ConnectError("no node at 10.0.0.1"), 503, STORE_FAILED),
        (errors.OutcomeUnknownError("node 10.0.0.1"), 504, STORE_FAILED),
        (KeyError("10.0.0.1"), 500, FAILED),
    ],
)
def test_what_goes_wrong_inside_is_in_the_log_and_not_in_the_answer(
    error: Exception, status: int, action: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        answer = answer_to(error, "put", {})

    assert answer.status_code == status
    assert b"10.0.0.1" not in answer.body
    (record,) = caplog.records
    assert (record.__dict__["action"], "10.0.0.1" in record.getMessage()) == (action, True)
