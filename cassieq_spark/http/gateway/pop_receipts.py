"""Pop receipts: receipts with a signature, as text for a URL.

A pop receipt is URL-safe Base64 of a receipt and its MAC, with a key that is derived from the
secret of the gateways. So nobody can forge a pop receipt, or turn the receipt of one message into
another's, and refusing a forged one costs no read. Gateways with the same secret accept each
other's pop receipts.

The MAC is keyed BLAKE2b (RFC 7693). An HMAC takes more than twice as long, and an answer may have
ten thousand receipts.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.http.accounts import Secrets
from cassieq_spark.http.serving.errors import RefusedError

#: Bytes of the MAC: enough that nobody guesses it while a lease lasts.
_LENGTH = 16


class PopReceipts:
    """Makes pop receipts with the first secret, and accepts pop receipts of all secrets."""

    def __init__(self, secrets: Secrets) -> None:
        self._keys = secrets.receipt_keys

    def of(self, receipt: str) -> str:
        """The pop receipt of a receipt."""
        plain = receipt.encode()
        return urlsafe_b64encode(plain + _seal(self._keys[0], plain)).rstrip(b"=").decode()

    def parse(self, text: str, queue: str) -> Receipt:
        """Parse a pop receipt of a queue. No read.

        Raises:
            RefusedError: 400; no gateway with one of these secrets made the pop receipt, or it is
                of another queue.
        """
        try:
            sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            plain, seal = sealed[:-_LENGTH], sealed[-_LENGTH:]
            receipt = Receipt.parse(plain.decode()) if self._made(plain, seal) else None
        except ValueError:
            receipt = None
        if receipt is None:
            raise RefusedError(
                "this is not a pop receipt of these gateways: send 'popReceipt' as it came with "
                "the message"
            )
        if receipt.queue != queue:
            raise RefusedError("this pop receipt is of another queue")
        return receipt

    def _made(self, plain: bytes, seal: bytes) -> bool:
        """True if a gateway with one of the secrets made this seal of a receipt."""
        for key in self._keys:  # noqa: SIM110 (any() costs as much as the MAC)
            if hmac.compare_digest(seal, _seal(key, plain)):
                return True
        return False


def _seal(key: bytes, plain: bytes) -> bytes:
    return hashlib.blake2b(plain, key=key, digest_size=_LENGTH).digest()
