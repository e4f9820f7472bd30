from __future__ import annotations

import pytest

from cassieq_spark.http.sqs.errors import InvalidParameterValue
from cassieq_spark.http.sqs.message_attributes import (
    RESERVED,
    Attribute,
    Extras,
    attribute_of,
    check_names,
    digest_of,
    from_headers,
    md5_of,
    outputs_of,
    selected,
    size_of,
    to_headers,
)

ALL = {
    "Help.Me": Attribute("String", "Me"),
    "Hello": Attribute("String", "There"),
    "General": Attribute("String", "Kenobi"),
}
TRACEPARENT = b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        (ALL, "4c360f3fdafd970e05fae2f149d997f5"),
        ({"MyAttribute": Attribute("String", "foobar")}, "adb59cd4678ea5a855436b949cd07ab6"),
        ({"timestamp": Attribute("Number", "1493147359900")}, "235c5c510d26fb653d073faed50ae77c"),
        ({"attr1": Attribute("Binary", TRACEPARENT)}, "8cbe4db156db8a94db8b801b7addb984"),
    ],
)
def test_digests_are_those_that_aws_answers_with(attributes, digest):
    assert digest_of(attributes) == digest


def test_there_is_no_digest_without_attributes():
    assert digest_of({}) is None


def test_the_whole_type_is_in_the_digest():
    of_base = digest_of({"a": Attribute("Number", "1")})

    assert digest_of({"a": Attribute("Number.int", "1")}) != of_base


def test_bodies_have_the_digest_of_their_utf_8():
    # printf ä | md5sum
    assert md5_of("ä".encode()) == "8419b71c87a225a2c70b50486fbee545"


@pytest.mark.parametrize(
    ("names", "found", "digest"),
    [
        # As AWS answers.
        (["All"], set(ALL), "4c360f3fdafd970e05fae2f149d997f5"),
        (["*"], set(ALL), "4c360f3fdafd970e05fae2f149d997f5"),
        ([".*"], set(ALL), "4c360f3fdafd970e05fae2f149d997f5"),
        (["Hello", "General"], {"Hello", "General"}, "fca026605781cb4126a1e9044df24232"),
        (["Foo", "Hello"], {"Hello"}, "a311262e065454b75da111d535b8dacd"),
        (["He.*"], {"Hello", "Help.Me"}, "83fee93c1bcd8b9a5a923ffacdc636c7"),
        (["Foo", "Help"], set(), None),
        (["AWS."], set(), None),
        ([], set(), None),
    ],
)
def test_names_filter_attributes_and_the_digest_is_of_those_returned(names, found, digest):
    held = selected(ALL, names)

    assert (set(held), digest_of(held)) == (found, digest)


def test_values_are_headers_that_other_programs_can_read():
    attributes = {
        "text": Attribute("String", "ä"),
        "count": Attribute("Number.int", "7"),
        "image": Attribute("Binary.png", b"\x00\xff"),
    }

    headers = to_headers(attributes, Extras(sender="acme:owner", trace="Root=1"))

    assert headers == {
        "text": "ä",
        "count": "7",
        "image": "AP8=",
        RESERVED: '{"types":{"count":"Number.int","image":"Binary.png"},"sender":"acme:owner",'
        '"trace":"Root=1"}',
    }
    assert from_headers(headers) == (attributes, Extras(sender="acme:owner", trace="Root=1"))


def test_a_message_of_texts_needs_no_reserved_header():
    assert to_headers({"a": Attribute("String", "b")}, Extras()) == {"a": "b"}


def test_headers_of_other_programs_are_texts():
    headers = {"lang": "en", "none": None, "cassieq.origin-queue": "orders"}

    assert from_headers(headers) == ({"lang": Attribute("String", "en")}, Extras())


def test_a_binary_header_that_another_program_has_changed_is_text():
    headers = {"image": "no base64", RESERVED: '{"types":{"image":"Binary"}}'}

    assert from_headers(headers)[0] == {"image": Attribute("String", "no base64")}


@pytest.mark.parametrize(
    "reserved", ["", "{", "[]", "1", "[" * 100_000, '{"types":[],"sender":1}']
)
def test_a_reserved_header_that_another_program_has_changed_is_ignored(reserved):
    headers = {"a": "b", RESERVED: reserved}

    assert from_headers(headers) == ({"a": Attribute("String", "b")}, Extras())


def test_outputs_have_the_value_of_the_type():
    assert outputs_of({"a": Attribute("Number", "1"), "b": Attribute("Binary", b"x")}) == {
        "a": {"DataType": "Number", "StringValue": "1"},
        "b": {"DataType": "Binary", "BinaryValue": b"x"},
    }


def test_names_types_and_values_count_in_bytes():
    assert size_of({"ab": Attribute("String", "äö"), "c": Attribute("Binary", b"123")}) == 22


@pytest.mark.parametrize(
    ("data_type", "text", "binary"),
    [
        ("String", "a", None),
        ("String.json", "{}", None),
        ("Number", "1", None),
        ("Number.float", "-1.5e-300", None),
        ("Number", ".5", None),
        ("Number", "1" * 256, None),
        ("Binary", None, b"\x00"),
        ("Binary.gif", "ignored", b"\x00"),
    ],
)
def test_valid_values_are_taken(data_type, text, binary):
    taken = attribute_of("a", data_type, text, binary)

    assert taken == (data_type, binary if data_type.startswith("Binary") else text)


@pytest.mark.parametrize(
    ("data_type", "text", "binary", "why"),
    [
        ("String", "", None, "attribute 'a' must contain a non-empty value of type 'String'."),
        ("String", None, b"x", "must contain a non-empty value of type 'String'."),
        ("Number", None, None, "must contain a non-empty value of type 'Number'."),
        ("Binary", "x", None, "must contain a non-empty value of type 'Binary'."),
        ("Binary", None, b"", "must contain a non-empty value of type 'Binary'."),
        ("Text", "x", None, "supported type prefixes is Binary, Number, and String."),
        ("Stringx", "x", None, "supported type prefixes is Binary, Number, and String."),
        ("string", "x", None, "supported type prefixes is Binary, Number, and String."),
        ("String.\x00", "x", None, "supported type prefixes is Binary, Number, and String."),
        ("String." + "x" * 250, "x", None, "type shorter than 256"),
        ("String", "\x0b", None, "invalid characters"),
        ("String", "\ufffe", None, "invalid characters"),
        ("Number", "one", None, "Can't cast the value of"),
        ("Number", "1" * 257, None, "Can't cast the value of"),
        ("Number", "NaN", None, "Can't cast the value of"),
        ("Number", "1e", None, "Can't cast the value of"),
    ],
)
def test_invalid_values_are_refused(data_type, text, binary, why):
    with pytest.raises(InvalidParameterValue, match=why):
        attribute_of("a", data_type, text, binary)


def test_names_of_all_allowed_characters_are_taken():
    check_names([*(f"a{n}" for n in range(9)), "a-_.Z9"])
    check_names(["x" * 256])


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 257,
        "a b",
        "ä",
        "a\n",
        ".a",
        "a.",
        "a..b",
        "AWS.a",
        "aws.a",
        "Amazon.a",
        "aws.sqs",
    ],
)
def test_other_names_are_refused(name):
    with pytest.raises(InvalidParameterValue):
        check_names([name])


def test_a_message_has_ten_attributes_at_most():
    with pytest.raises(InvalidParameterValue) as caught:
        check_names([f"a{n}" for n in range(11)])

    assert str(caught.value) == (
        "Number of message attributes [11] exceeds the allowed maximum [10]."
    )
