"""Certificates of a test's own, in PEM form, made by the JDK's keytool.

keytool writes no private key in PEM form, so they are read out of its key store here.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cassieq_spark.node.java import find_java

_PASSWORD = "throw-away"
_PRIVATE_KEY = 1
_SALT = 20


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: a CA, a node and a client that it has signed, and a CA that signed neither."""

    ca: Path
    other_ca: Path
    #: Key and certificates in one file; good for 127.0.0.1 to 127.0.0.3.
    node: Path
    client_certificate: Path
    client_key: Path
    #: Key and certificate in one file, of the other CA.
    stranger: Path


def make_certificates(folder: Path) -> Certificates:
    """Takes some seconds."""
    store = folder / "keys.jks"
    for name in ("ca", "other-ca"):
        _keytool(store, name, "-ext", "bc:c")
    addresses = ",".join(f"ip:127.0.0.{number}" for number in (1, 2, 3))
    _keytool(store, "node", "-signer", "ca", "-ext", f"san={addresses}")
    _keytool(store, "client", "-signer", "ca")
    entries = _entries(store.read_bytes())

    def pem(filename: str, text: str) -> Path:
        path = folder / filename
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    return Certificates(
        ca=pem("ca.pem", entries["ca"][1]),
        other_ca=pem("other-ca.pem", entries["other-ca"][1]),
        node=pem("node.pem", "".join(entries["node"])),
        client_certificate=pem("client.pem", entries["client"][1]),
        client_key=pem("client-key.pem", entries["client"][0]),
        stranger=pem("stranger.pem", "".join(entries["other-ca"])),
    )


def _keytool(store: Path, name: str, *more: str) -> None:
    command = [str(find_java().parent / "keytool"), "-genkeypair", "-alias", name]
    command += ["-dname", f"CN={name}", "-keyalg", "RSA", "-keysize", "2048", "-validity", "2"]
    command += ["-keystore", str(store), "-storetype", "JKS"]
    command += ["-storepass", _PASSWORD, "-keypass", _PASSWORD, *more]
    if "-signer" in more:
        command += ["-signerkeypass", _PASSWORD]
    subprocess.run(command, check=True, capture_output=True)


def _entries(data: bytes) -> dict[str, tuple[str, str]]:
    """Key and certificates of each entry of a JKS key store, as PEM text."""
    position = 0

    def take(form: str) -> int:
        nonlocal position
        (number,) = struct.unpack_from(f">{form}", data, position)
        position += struct.calcsize(form)
        return number

    def take_bytes(length: int) -> bytes:
        nonlocal position
        position += length
        return data[position - length : position]

    assert (take("I"), take("I")) == (0xFEEDFEED, 2)
    found = {}
    for _ in range(take("I")):
        assert take("I") == _PRIVATE_KEY
        name = take_bytes(take("H")).decode()
        take("Q")
        key = _unprotected(take_bytes(take("I")))
        chain = []
        for _ in range(take("I")):
            take_bytes(take("H"))
            chain.append(_pem("CERTIFICATE", take_bytes(take("I"))))
        found[name] = (_pem("PRIVATE KEY", key), "".join(chain))
    return found


def _unprotected(entry: bytes) -> bytes:
    """The key in Sun's own EncryptedPrivateKeyInfo: salt, key XOR a chain of SHA-1, check."""
    password = _PASSWORD.encode("utf-16-be")
    # The last member of the structure, an octet string with a length of two bytes.
    start = entry.index(b"\x04\x82", entry.index(b"\x2b\x06\x01\x04\x01\x2a\x02\x11\x01\x01")) + 4
    salt, hidden, check = entry[start:][:_SALT], entry[start + _SALT : -20], entry[-20:]
    stream, digest = b"", salt
    while len(stream) < len(hidden):
        digest = hashlib.sha1(password + digest).digest()
        stream += digest
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    assert hashlib.sha1(password + key).digest() == check
    return key


def _pem(kind: str, der: bytes) -> str:
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n"
