"""``cassieq gateway``: serves the queues by HTTP."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from cassieq_spark.cli.connection import impatient
from cassieq_spark.cli.options import (
    ADDRESS,
    DEFAULT_GATEWAY,
    Address,
    AsJson,
    Value,
    command,
    make_app,
)
from cassieq_spark.cli.output import tell
from cassieq_spark.client import AsyncClient
from cassieq_spark.errors import OptionError, SetupError
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.accounts.signing import new_secret
from cassieq_spark.schedules.runner import Runner, running
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.settings.secret import REFERENCES, check_reference, reveal
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo

app = make_app("Serve the queues by HTTP, and create accounts for its users.")

#: How long after its last request the console of a gateway stops reading.
_CONSOLE_RESTS = timedelta(hours=1)
_OF_OTHERS = stat.S_IRGRP | stat.S_IROTH

Secret = Annotated[
    str,
    typer.Option(
        help=f"Secret of the gateways, the same for all of them: {REFERENCES}.",
        metavar="REFERENCE",
        show_default=False,
    ),
]


@command(app)
def serve(  # noqa: PLR0913 (one per option)
    *,
    connection: ConnectionOptions,
    limits: Limits,
    secret: Secret,
    listen: Annotated[
        Address, Value(ADDRESS, "Address to listen on: host:port or [ipv6]:port.")
    ] = DEFAULT_GATEWAY,
    tls_cert_file: Annotated[
        str | None,
        typer.Option(
            help="PEM file of the server's certificate.",
            metavar="FILE",
            show_default="no encryption",
        ),
    ] = None,
    tls_key_file: Annotated[
        str | None,
        typer.Option(
            help="PEM file of its private key.",
            metavar="FILE",
            show_default="in the certificate file",
        ),
    ] = None,
    cors_origin: Annotated[
        list[str],
        typer.Option(
            help="Origin of pages whose requests are accepted; * for any. Repeatable.",
            metavar="ORIGIN",
            show_default="none",
        ),
    ] = [],  # noqa: B006 (typer copies it)
    access_log: Annotated[
        bool, typer.Option(help="Log a line of JSON for each request, on standard error.")
    ] = True,
    proxy: Annotated[
        list[str],
        typer.Option(
            help="Address or network of a proxy: the gateway trusts its X-Forwarded-For, and does "
            "not limit its connections. Repeatable.",
            metavar="ADDRESS",
            show_default="none",
        ),
    ] = [],  # noqa: B006 (typer copies it)
    sqs: Annotated[
        bool, typer.Option("--sqs", help="Serve the clients of SQS at the same address, too.")
    ] = False,
    sqs_url: Annotated[
        str | None,
        typer.Option(
            help="Beginning of queue URLs of SQS, if a proxy changes the header Host.",
            metavar="URL",
            show_default="as the request names the gateway",
        ),
    ] = None,
    sqs_unsigned: Annotated[
        str | None,
        typer.Option(
            help="Account of SQS requests that are not signed, for tests: only on loopback.",
            metavar="ACCOUNT",
            show_default="they are refused",
        ),
    ] = None,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes", help="Let administrators change queues in the console at /console."
        ),
    ] = False,
    schedules: Annotated[
        bool, typer.Option("--schedules", help="Run the schedules of all queues, too.")
    ] = False,
) -> None:
    """Serve the queues by HTTP, until SIGTERM or Ctrl-C.

    Any number of gateways may run side by side. 'cassieq gateway account' creates accounts; so do
    requests with the key that 'cassieq gateway admin-key' prints. With that key, administrators
    log in to the console at /console.

    Examples:
        cassieq gateway serve --secret file:gateway.secret
        cassieq gateway serve --secret file:gateway.secret --sqs
        cassieq gateway serve --secret env:SECRET --listen 0.0.0.0:8443 --tls-cert-file cert.pem
    """
    try:
        from cassieq_spark.console import Console  # noqa: PLC0415 (an extra)
        from cassieq_spark.http.gateway import Serving  # noqa: PLC0415 (an extra)
        from cassieq_spark.http.gateway import serve as serve_gateway  # noqa: PLC0415 (an extra)
        from cassieq_spark.http.sqs.addresses import check_base  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        raise SetupError(
            "the gateway needs more packages: pip install 'cassieq-spark[gateway]'"
        ) from error
    secrets = read_secrets(secret)
    if not sqs and (sqs_url is not None or sqs_unsigned is not None):
        raise OptionError("--sqs-url and --sqs-unsigned are for SQS: add --sqs, or leave them out")
    base = None if sqs_url is None else check_base(sqs_url)
    # A client prefers an error to a long wait for the end of an outage.
    with (
        closing(open_store(impatient(connection))) as store,
        closing(
            Console(
                store,
                title=connection.keyspace,
                admin_key=secrets.admin_key,
                allow_changes=allow_changes,
                rest_after=_CONSOLE_RESTS,
            )
        ) as console,
        running(Runner(store)) if schedules else nullcontext(),
    ):
        serving = Serving(
            host=listen.host,
            port=listen.port,
            certificate=tls_cert_file,
            private_key=tls_key_file,
            proxies=proxy,
            origins=cors_origin,
            limits=limits,
            on_start=lambda url: echo(f"Gateway at {url}; Ctrl-C ends it."),
            console=console,
            sqs=sqs,
            sqs_url=base,
            sqs_unsigned=sqs_unsigned,
        )
        accounts = Accounts(store, secrets)
        if sqs_unsigned is not None and accounts.find(sqs_unsigned) is None:
            raise OptionError(
                f"--sqs-unsigned: there is no account {sqs_unsigned!r}: create it first, by "
                f"cassieq gateway account create {sqs_unsigned}"
            )
        log_as_json(logging.INFO if access_log else logging.WARNING)
        serve_gateway(
            AsyncClient.from_store(store, threads=limits.threads, share=limits.account_threads),
            accounts,
            serving,
        )


@command(app)
def secret(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="File to create, for its user alone.",
            show_default="print the secret",
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Create a secret for the gateways: in a file for its user alone, or printed.

    Examples:
        cassieq gateway secret gateway.secret
    """
    made = new_secret()
    if file is None:
        tell(made, {"secret": made}, as_json=as_json)
        return
    try:
        # A new file: nobody else can read it from the beginning, and no link is followed.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise OptionError(
            f"file {file} exists, and a secret is not overwritten: create the new one in another "
            "file, and put its line before the old one"
        ) from error
    except OSError as error:
        raise SetupError(f"file {file} cannot be created: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(made + "\n")
    tell(f"A secret is in {file}, for its user alone.", {"file": str(file)}, as_json=as_json)


@command(app, "admin-key")
def admin_key(*, secret: Secret, as_json: AsJson = False) -> None:
    """Print the key with which programs create accounts by HTTP, at /admin/api/v1.

    Examples:
        cassieq gateway admin-key --secret file:gateway.secret
    """
    key = read_secrets(secret).admin_key
    tell(key, {"admin_key": key}, as_json=as_json)


@command(app)
def account(
    name: Annotated[str, typer.Argument(help="Name of the account.", show_default=False)],
    *,
    connection: ConnectionOptions,
    secret: Secret,
    as_json: AsJson = False,
) -> None:
    """Create an account, and print its two keys.

    The names of its queues begin with the name of the account and a colon: shop:orders.

    Examples:
        cassieq gateway account shop --secret file:gateway.secret
    """
    secrets = read_secrets(secret)
    with closing(open_store(connection)) as store:
        made = Accounts(store, secrets).create(name)
    keys = {key.name: key.key for key in made.keys}
    tell(
        "\n".join(f"{key_name} {key}" for key_name, key in keys.items()),
        {"account": name, "keys": keys},
        as_json=as_json,
    )


def log_as_json(level: int) -> None:
    """Log the records of this package as lines of JSON, on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    ours = logging.getLogger("cassieq_spark")
    ours.setLevel(level)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class _JsonLines(logging.Formatter):
    """Formats a record as a line of JSON, with its message and its further fields."""

    _own = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line of JSON; see `logging.Formatter.format`."""
        extra = {name: value for name, value in vars(record).items() if name not in self._own}
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"at": at, "level": record.levelname, "message": record.getMessage(), **extra}
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def read_secrets(reference: str) -> Secrets:
    """The secrets of the gateways; warns if other users of this machine may read their file.

    Raises:
        OptionError: There is no secret, or it is not given by reference.
    """
    check_reference("secret", reference)
    secrets = Secrets.parse(reveal("secret", reference))
    kind, _, path = reference.partition(":")
    if kind == "file" and Path(path).stat().st_mode & _OF_OTHERS:
        echo(
            f"Warning: others on this machine may read the secret in {path}: chmod 600 {path}",
            err=True,
        )
    return secrets
