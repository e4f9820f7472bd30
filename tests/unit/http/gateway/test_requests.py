"""What is said of bodies that are wrong."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from cassieq_spark.http.gateway.requests import problems
from cassieq_spark.http.gateway.schemas import Receipts, Update


def problems_of(model: type[Receipts | Update], body: object) -> tuple[int, str]:
    """How many errors were collected, and what is said of them."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(json.dumps(body))
    return caught.value.error_count(), problems(caught.value, model, "field", "the body")


def test_of_many_receipts_that_are_wrong_the_first_is_named():
    count, why = problems_of(Receipts, {"popReceipts": [0] * 10_000})

    assert (count, why.split(":")[:2]) == (1, ["the body is not valid", " popReceipts.0"])


def test_so_many_wrong_fields_are_counted_that_to_name_them_takes_long():
    body = {f"field{number}": 0 for number in range(101)}

    assert problems_of(Update, body) == (101, "the body is not valid: 101 fields are wrong")
    del body["field0"]
    _, why = problems_of(Update, body)
    assert why.count("field") > 4
    assert "field1" in why
