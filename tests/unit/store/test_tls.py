from __future__ import annotations

import ssl
import zipfile
from pathlib import Path

import pytest

from cassieq_spark.errors import SetupError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.tls import advice, encryption


def test_without_tls_the_driver_gets_addresses_alone():
    assert encryption(ConnectionOptions()) == {
        "contact_points": [("127.0.0.1", 9042)],
        "port": 9042,
    }


@pytest.mark.parametrize("check", [True, False])
def test_tls_is_recent_and_checks_who_answers(check: bool):
    options = ConnectionOptions(ssl=True, ssl_check_hostname=check)
    context = encryption(options)["ssl_context"]

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname == check


@pytest.mark.parametrize("content", [None, "no certificate", ""])
def test_a_ca_file_that_is_none_is_named(tmp_path: Path, content: str | None):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)

    with pytest.raises(SetupError, match=rf"CA file {file}.*(cannot be read: No such|PEM form)"):
        encryption(ConnectionOptions(ssl_ca_file=str(file)))


def test_a_certificate_without_a_key_anywhere_is_named(tmp_path: Path):
    file = tmp_path / "own.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\n")

    with pytest.raises(SetupError, match=f"key file {file} holds no private key"):
        encryption(ConnectionOptions(ssl_cert_file=str(file)))
    with pytest.raises(SetupError, match=r"certificate file nowhere\.pem cannot be read"):
        encryption(ConnectionOptions(ssl_cert_file="nowhere.pem"))


def test_a_bundle_reaches_the_driver_and_is_unpacked_where_one_may_write(tmp_path: Path):
    bundle = tmp_path / "secure-connect.zip"
    with zipfile.ZipFile(bundle, "w") as zipped:
        for name in ("config.json", "ca.crt", "cert", "key"):
            zipped.writestr(name, "")

    assert encryption(ConnectionOptions(secure_connect_bundle=str(bundle))) == {
        "cloud": {"secure_connect_bundle": str(bundle), "use_default_tempdir": True}
    }


def test_a_file_that_is_no_bundle_is_named_with_what_is_wrong(tmp_path: Path):
    def refusal(path: Path) -> str:
        with pytest.raises(SetupError, match=str(path)) as refused:
            encryption(ConnectionOptions(secure_connect_bundle=str(path)))
        return str(refused.value)

    assert "No such file" in refusal(tmp_path / "nowhere.zip")
    (tmp_path / "text.zip").write_text("text")
    assert "not a zip file" in refusal(tmp_path / "text.zip")
    with zipfile.ZipFile(tmp_path / "part.zip", "w") as zipped:
        zipped.writestr("config.json", "{}")
    assert "lacks ca.crt, cert, key" in refusal(tmp_path / "part.zip")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("certificate verify failed: unable to get local issuer certificate", "none of ca.pem"),
        ("IP address mismatch, certificate is not valid for '127.0.0.1'", "another address"),
        ("certificate verify failed: certificate has expired (_ssl.c:1006)", "dates of its"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert", "client's certificate"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "does not speak TLS"),
        ("Connection refused", "Cassandra runs there"),
    ],
)
def test_what_openssl_says_is_explained(reason: str, told: str):
    assert told in advice(reason, ConnectionOptions(ssl_ca_file="ca.pem"))


def test_who_connects_in_the_clear_is_reminded_of_tls():
    assert "if it speaks TLS only" in advice("Connection reset", ConnectionOptions())
