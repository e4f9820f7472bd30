"""Mutants of the protocol of SQS: who has signed a request, and what it says."""

from __future__ import annotations

from tests.mutants.changes import (
    drop_argument,
    drop_condition,
    drop_element,
    drop_statement,
    never,
    replace,
    unwrap,
    value,
)
from tests.mutants.mutant import Mutant

_SIGNATURE = ("unit/http/sqs/test_signature.py",)
_PROTOCOLS = ("unit/http/sqs/test_protocols.py",)

SQS = (
    # -- signatures ---------------------------------------------------------------------------
    Mutant(
        "any signature of SQS is taken",
        "signatures of SQS",
        "http.sqs.signature:Claim.signer",
        value("True", of="compare_digest"),
        _SIGNATURE,
    ),
    Mutant(
        "a request is signed by whoever has the secret of no key",
        "signatures of SQS",
        "http.sqs.signature:Claim.signer",
        drop_condition("secrets", nth=2),
        _SIGNATURE,
    ),
    Mutant(
        "a signing key signs for every day and region",
        "signatures of SQS",
        "http.sqs.signature:signature_of",
        replace("scope", "_[:0]"),
        _SIGNATURE,
    ),
    Mutant(
        "the body is not a part of the signature",
        "signatures of SQS",
        "http.sqs.signature:canonical_request",
        drop_element("body_digest"),
        _SIGNATURE,
    ),
    Mutant(
        "a header of AWS need not be signed",
        "signatures of SQS",
        "http.sqs.signature:_check_headers",
        never("_SIGNED_BEGIN"),
        _SIGNATURE,
    ),
    Mutant(
        "the host need not be signed",
        "signatures of SQS",
        "http.sqs.signature:_check_headers",
        never("_HOST"),
        _SIGNATURE,
    ),
    Mutant(
        "the clock of a signature is not looked at",
        "signatures of SQS",
        "http.sqs.signature:claim_of",
        drop_statement("_check_clock"),
        _SIGNATURE,
    ),
    Mutant(
        "a presigned URL is valid for ever",
        "signatures of SQS",
        "http.sqs.signature:_check_expiry",
        never("timedelta"),
        _SIGNATURE,
    ),
    Mutant(
        "a signature of another service is taken",
        "signatures of SQS",
        "http.sqs.signature:_signing",
        never("service"),
        _SIGNATURE,
    ),
    Mutant(
        "a part of a presigned URL may be given twice",
        "signatures of SQS",
        "http.sqs.signature:_presigned",
        drop_statement("IncompleteSignature"),
        _SIGNATURE,
    ),
    # -- the protocol -------------------------------------------------------------------------
    Mutant(
        "types of attributes are cut to their base in the digest",
        "the protocol of SQS",
        "http.sqs.message_attributes:digest_of",
        replace("each.type", "_.partition('.')[0]"),
        ("unit/http/sqs/test_message_attributes.py",),
    ),
    Mutant(
        "a carriage return is lost in XML",
        "the protocol of SQS",
        "http.sqs.query_protocol:_text",
        drop_argument("escape", "_ESCAPED"),
        _PROTOCOLS,
    ),
    Mutant(
        "characters that XML has not are sent in XML",
        "the protocol of SQS",
        "http.sqs.query_protocol:_text",
        unwrap("with_xml_characters"),
        ("property/test_sqs_property.py",),
    ),
    Mutant(
        "items of a list come in the order of their texts",
        "the protocol of SQS",
        "http.sqs.query_protocol:_ordered",
        drop_argument("sorted", "key"),
        _PROTOCOLS,
    ),
    Mutant(
        "a batch is as large as it likes",
        "the protocol of SQS",
        "http.sqs.inputs:SendMessageBatch._check",
        never("LARGEST_MESSAGE"),
        ("unit/http/sqs/test_inputs.py",),
    ),
)
