from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from cassieq_spark.cli import app as cassieq
from cassieq_spark.cli.options import command
from cassieq_spark.cli.repair import USAGE, main
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import ConnectionOptions, Consistency


def connection_of(*arguments: str, said: str | None = None) -> ConnectionOptions:
    """What a command is given."""
    app = typer.Typer()
    seen: list[ConnectionOptions] = []

    @command(app)
    def connect(*, connection: ConnectionOptions) -> None:
        seen.append(connection)

    result = CliRunner().invoke(app, arguments, input=said)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    assert "hunter2" not in result.output
    return seen[0]


def test_without_arguments_a_command_connects_as_the_store_does():
    assert connection_of() == ConnectionOptions()


def test_every_way_to_connect_is_an_argument():
    arguments = "--contact-points 10.0.0.1 --port 9043 --local-dc dc1 --username ann"
    arguments += " --password env:PASSWORD --ssl --ssl-ca-file ca.pem --ssl-cert-file own.pem"
    arguments += " --ssl-key-file own.key --no-ssl-check-hostname --consistency quorum"

    assert connection_of(*arguments.split(), "--keyspace", "queues") == ConnectionOptions(
        contact_points=("10.0.0.1",),
        port=9043,
        local_dc="dc1",
        username="ann",
        password="env:PASSWORD",
        ssl=True,
        ssl_ca_file="ca.pem",
        ssl_cert_file="own.pem",
        ssl_key_file="own.key",
        ssl_check_hostname=False,
        consistency=Consistency.QUORUM,
        keyspace="queues",
    )


def test_the_environment_goes_before_the_defaults_and_behind_the_arguments(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("CASSIEQ_KEYSPACE", "of_the_environment")
    monkeypatch.setenv("CASSIEQ_SSL", "true")

    assert connection_of() == ConnectionOptions(keyspace="of_the_environment", ssl=True)
    assert connection_of("--keyspace", "given").keyspace == "given"


def test_a_bundle_stands_alone():
    options = connection_of("--secure-connect-bundle", "b.zip")

    assert options == ConnectionOptions(secure_connect_bundle="b.zip")


def test_a_password_is_asked_for_and_not_shown():
    assert connection_of("--username", "ann", said="hunter2\n").password == "hunter2"


def test_a_weak_consistency_is_refused():
    with pytest.raises(OptionError, match="not supported"):
        connection_of("--consistency", "ONE")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--ssl-key-file own.key", "comes without its certificate"),
        ("--secure-connect-bundle b.zip --local-dc dc1", "leave out: a local data centre"),
        ("--consistency ALL", "not supported"),
        ("--username ann --password env:", "env:NAME or file:PATH"),
        ("--no-ssl-check-hostname", "needs an encrypted connection"),
        ("--username ann --password file:nowhere", "file nowhere, which cannot be read"),
        ("--ssl-ca-file nowhere.pem", "CA file nowhere.pem cannot be read"),
    ],
)
def test_the_repair_job_refuses_the_same_before_anything_is_touched(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments.split()) == USAGE

    assert complaint in capsys.readouterr().err


def test_grants_are_printed_without_a_cluster():
    arguments = ["schema", "grants", "producer", "loader", "--keyspace", "queues"]

    result = CliRunner().invoke(cassieq, arguments)

    assert result.output.splitlines()[-1] == 'GRANT MODIFY ON TABLE queues.chunk TO "loader";'
