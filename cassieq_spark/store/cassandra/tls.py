"""Encryption: the driver's arguments, from PEM files or a bundle, and advice on failures."""

from __future__ import annotations

import re
import ssl
import zipfile
from pathlib import Path
from typing import Any, NoReturn

from cassieq_spark.errors import SetupError
from cassieq_spark.settings.connection import DEFAULT_CONTACT_POINTS, ConnectionOptions

#: Error texts of OpenSSL, and what to do about each.
_ADVICE = {
    r"unable to get (local )?issuer|self.signed certificate": (
        "its certificate is signed by none of {ca}: name the right CA file"
    ),
    r"(hostname|ip address) mismatch|certificate is not valid for": (
        "its certificate is of another address: it must name each node's IP address, or turn off "
        "the check of host names"
    ),
    r"certificate (has expired|is not yet valid)": (
        "check the dates of its certificate, and the clock of this machine"
    ),
    r"alert.(certificate.(required|unknown)|bad.certificate|unknown.ca)": (
        "it does not trust the client's certificate, or needs one: name the right certificate and "
        "key file"
    ),
    r"wrong.version.number|record.layer.failure": (
        "it does not speak TLS on this port: connect without, or to its TLS port"
    ),
    r"driver does not support protocol version": (
        "what answers there does not speak Cassandra's protocol: give the port for CQL, which is "
        "9042 by default"
    ),
}


def encryption(options: ConnectionOptions) -> dict[str, Any]:
    """The arguments of the driver's ``Cluster`` for nodes and encryption; reads the files.

    Raises:
        SetupError: A file is missing, unreadable, or of another kind.
    """
    if options.secure_connect_bundle is not None:
        path = options.secure_connect_bundle
        _check_bundle(path)
        # By default the driver unpacks the bundle beside it, where it often may not write.
        return {"cloud": {"secure_connect_bundle": path, "use_default_tempdir": True}}
    where = {"contact_points": list(options.endpoints), "port": options.port}
    return where | ({"ssl_context": _context(options)} if options.encrypted else {})


def advice(reason: str, options: ConnectionOptions) -> str:
    """Suggest what to check after a connection failed.

    Args:
        reason: The error of the driver or OpenSSL.
        options: The settings of the connection.
    """
    for pattern, text in _ADVICE.items():
        if re.search(pattern, reason, re.IGNORECASE):
            return text.format(ca=options.ssl_ca_file or "the CAs that this machine trusts")
    usual = "check that Cassandra runs there, and that port and data centre are right"
    if options.encrypted:
        usual += "; and whether it speaks TLS there, and which client certificates it trusts"
    else:
        usual += "; if it speaks TLS only, switch that on"
    if options.contact_points != DEFAULT_CONTACT_POINTS or options.secure_connect_bundle:
        return usual
    return (
        f"{usual}. {DEFAULT_CONTACT_POINTS[0]} is this machine, and the default: for other nodes, "
        "give the option spark.cassandra.connection.host in Spark, Client(contact_points=...) or "
        "--contact-points"
    )


def _context(options: ConnectionOptions) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if options.ssl_ca_file is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _read("CA file", options.ssl_ca_file)
        try:
            context.load_verify_locations(cafile=options.ssl_ca_file)
        except ssl.SSLError as error:
            raise SetupError(
                f"the CA file {options.ssl_ca_file} holds no certificate in PEM form"
            ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = options.ssl_check_hostname
    if options.ssl_cert_file is not None:
        _load_certificate(context, options.ssl_cert_file, options.ssl_key_file)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    _read("certificate file", certificate)
    key = key or certificate
    if "PRIVATE KEY-----" not in _read("key file", key):
        raise SetupError(f"the key file {key} holds no private key in PEM form")

    def refuse_passphrase() -> NoReturn:
        raise SetupError(
            f"the private key in {key} has a passphrase: store it without one, readable by the "
            "job's user alone"
        )

    try:
        # Without a function, OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate, key, password=refuse_passphrase)
    except ssl.SSLError as error:
        reason = (
            "the key is not that of the certificate"
            if error.reason == "KEY_VALUES_MISMATCH"
            else f"not a certificate and its key in PEM form ({error.reason})"
        )
        raise SetupError(f"certificate file {certificate}, key file {key}: {reason}") from error


def _check_bundle(path: str) -> None:
    try:
        with zipfile.ZipFile(path) as bundle:
            lacking = {"config.json", "ca.crt", "cert", "key"}.difference(bundle.namelist())
    except (OSError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a zip file"
        raise SetupError(f"the secure connect bundle {path} cannot be read: {reason}") from error
    if lacking:
        raise SetupError(
            f"{path} is no secure connect bundle: it lacks {', '.join(sorted(lacking))}"
        )


def _read(what: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError as error:
        raise SetupError(
            f"the {what} {path} cannot be read: {error.strerror}; it must be on every machine "
            "that connects, the executors' too"
        ) from error
