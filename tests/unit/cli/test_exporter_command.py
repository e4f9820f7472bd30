from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from cassieq_spark.cli import app, monitoring
from cassieq_spark.cli.options import ADDRESS, Address
from cassieq_spark.errors import OptionError, SetupError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.declaration import parse_value


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.1:9108", ("127.0.0.1", 9108)),
        ("localhost:0", ("localhost", 0)),
        (" [::1]:65535 ", ("::1", 65535)),
    ],
)
def test_an_address_is_host_and_port(text: str, meant: tuple[str, int]):
    address = ADDRESS.parse(text)

    assert address == Address(*meant)
    assert ADDRESS.parse(ADDRESS.show(address)) == address


@pytest.mark.parametrize("text", ["", "9108", ":9108", "host:", "host:65536", "::1:9108", "a b:1"])
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(OptionError, match=r"--listen must be host:port .* not "):
        parse_value("--listen", ADDRESS, text)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--listen", "nowhere"], "--listen must be"),
        (["--every", "often"], "--every must be"),
        (["--listen", "192.0.2.1:9108"], "can't listen at 192.0.2.1, port 9108"),
    ],
)
def test_bad_arguments_are_refused_before_anybody_connects(
    arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch
):
    connected: list[ConnectionOptions] = []
    monkeypatch.setattr(monitoring, "open_store", connected.append)

    result = CliRunner().invoke(app, ["exporter", *arguments])

    assert isinstance(result.exception, OptionError)
    assert complaint in str(result.exception)
    assert not connected


def test_without_prometheus_client_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "cassieq_spark.monitoring.exporter", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    result = CliRunner().invoke(app, ["exporter"])

    assert isinstance(result.exception, SetupError)
    assert "pip install 'cassieq-spark[metrics]'" in str(result.exception)
