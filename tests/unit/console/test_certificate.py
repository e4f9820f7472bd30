"""A server whose certificate cannot be read, the console's or a gateway's."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassieq_spark.client import AsyncClient
from cassieq_spark.console import Console
from cassieq_spark.console import server as console
from cassieq_spark.errors import SetupError
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.gateway import server as gateway
from cassieq_spark.store.memory import MemoryStore


def serve_console(certificate: str, private_key: str | None) -> None:
    serving = console.ConsoleServing(port=0, certificate=certificate, private_key=private_key)
    console.serve(lambda _: Console(MemoryStore()), serving, print)


def serve_gateway(certificate: str, private_key: str | None) -> None:
    store = MemoryStore()
    serving = gateway.Serving(port=0, certificate=certificate, private_key=private_key)
    accounts = Accounts(store, Secrets(("the-secret-of-a-gateway-that-never-starts",)))
    gateway.serve(AsyncClient.from_store(store), accounts, serving)


@pytest.mark.parametrize("serve", [serve_console, serve_gateway])
@pytest.mark.parametrize("with_key", [True, False])
def test_a_certificate_that_cannot_be_read_is_named(serve, tmp_path: Path, *, with_key: bool):
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem" if with_key else None

    with pytest.raises(SetupError, match="No such file") as told:
        serve(str(certificate), None if key is None else str(key))

    assert str(certificate) in str(told.value)
    assert str(key or "in the same file") in str(told.value)


@pytest.mark.parametrize("serve", [serve_console, serve_gateway])
def test_a_certificate_that_is_none_is_named(serve, tmp_path: Path):
    certificate = tmp_path / "c.pem"
    certificate.write_text("no certificate")

    with pytest.raises(SetupError, match="PEM"):
        serve(str(certificate), None)
