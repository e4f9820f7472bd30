from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cassieq_spark.cli import app as program
from cassieq_spark.cli import connection
from cassieq_spark.cli.connection import choose
from cassieq_spark.cli.options import command
from cassieq_spark.cli.repair import USAGE, main
from cassieq_spark.errors import ConnectError, OptionError
from cassieq_spark.node.background import Background, Running
from cassieq_spark.settings.connection import ConnectionOptions, Consistency
from tests.support.command_line import cassieq
from tests.support.terminal import on_terminal


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


def test_a_password_is_asked_for_and_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "_has_terminal", lambda: True)

    assert connection_of("--username", "ann", said="hunter2\n").password == "hunter2"


def test_without_a_terminal_no_message_is_taken_for_a_password():
    words = [sys.executable, "-m", "cassieq_spark.cli", "put", "orders", "-", "--username", "ann"]

    ended = subprocess.run(
        [*words, "--port", "1"],
        input=b"one\n",
        capture_output=True,
        start_new_session=True,
        check=False,
    )

    assert ended.returncode == 2
    assert b"no terminal to ask for the password of ann on: give --password" in ended.stderr


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

    result = CliRunner().invoke(program, arguments)

    assert result.output.splitlines()[-1] == 'GRANT MODIFY ON TABLE queues.chunk TO "loader";'


# -- variables ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("CASSIEQ_PORT", "tcp://10.0.0.1:80", "the variable CASSIEQ_PORT: "),
        ("CASSIEQ_SSL", "maybe", "the variable CASSIEQ_SSL: "),
        ("CASSIEQ_KEYSPACE", "No-Such", "CASSIEQ_KEYSPACE: keyspace 'No-Such'"),
        ("CASSIEQ_MAX_MESSAGE", "huge", "CASSIEQ_MAX_MESSAGE must be a size"),
    ],
)
def test_an_error_names_the_variable_that_is_wrong_and_not_its_option(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, complaint: str
):
    monkeypatch.setenv(name, value)

    ended = cassieq("gateway", "serve", "--secret", "env:GATEWAY_SECRET")

    assert ended.code == 2
    assert complaint in ended.err
    assert "--" not in ended.err.splitlines()[-1]


def test_an_option_that_is_wrong_is_named_although_its_variable_is_set(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("CASSIEQ_PORT", "9042")

    assert "Invalid value for '--port'" in cassieq("queue", "list", "--port", "abc").err


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CASSIEQ_CONTACT_POINT", "CASSIEQ_CONTACT_POINTS"),
        ("CASSIEQ_KEY_SPACE", "CASSIEQ_KEYSPACE"),
        ("CASSIEQ_MAX_MESSAGES", "CASSIEQ_MAX_MESSAGE"),
        ("CASSIEQ_CONF", "CASSIEQ_CONFIG"),
    ],
)
def test_a_variable_that_is_misspelt_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str
):
    monkeypatch.setenv(name, "10.0.0.1")

    ended = cassieq("queue", "list", "--port", "1")

    assert ended.code == 2
    assert ended.err == f"cassieq: no setting has the variable {name}; did you mean {meant}?\n"


@pytest.mark.parametrize(
    "name",
    ["CASSIEQ_PORT_8080_TCP_ADDR", "CASSIEQ_SERVICE_HOST", "CASSIEQ_MESSAGE_KEY", "CASSIEQ_TEST"],
)
def test_a_variable_of_somebody_else_is_left_alone(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv(name, "x")

    assert connection_of() == ConnectionOptions()


# -- which Cassandra it is ------------------------------------------------------------------------

NOTHING: dict[str, Any] = {
    "contact_points": ("127.0.0.1",),
    "port": 9042,
    "username": None,
    "password": None,
    "ssl_ca_file": None,
}
PLAIN = Running(pid=1, contact_points=["127.0.0.1"], port=19042)
SECURED = Running(
    pid=1,
    contact_points=["127.0.0.1", "127.0.0.2"],
    port=19043,
    username="admin",
    password_file="/keys/password",
    ca_file="/keys/ca.pem",
)


def test_without_a_name_it_is_the_node_in_the_background():
    chosen, named_by = choose(NOTHING, lambda _: None, PLAIN)

    assert chosen == {**NOTHING, "port": 19042}
    assert named_by == "started by 'cassieq node up'"


def test_without_a_node_it_is_the_default():
    assert choose(NOTHING, lambda _: None, None) == (NOTHING, None)


@pytest.mark.parametrize("given", ["contact_points", "port", "secure_connect_bundle"])
def test_a_name_goes_before_the_node(given: str):
    values = {**NOTHING, "secure_connect_bundle": None, given: "x"}

    chosen, named_by = choose(values, lambda name: "--it" if name == given else None, SECURED)

    assert (chosen, named_by) == (values, "--it")


def test_a_node_that_asks_for_it_is_given_its_administrator_and_its_ca():
    chosen, _ = choose(NOTHING, lambda _: None, SECURED)

    assert chosen["contact_points"] == ("127.0.0.1", "127.0.0.2")
    assert (chosen["username"], chosen["password"]) == ("admin", "file:/keys/password")
    assert chosen["ssl_ca_file"] == "/keys/ca.pem"


def test_a_user_of_your_own_logs_in_at_the_node():
    own = {"username": "ann", "password": "env:PW", "ssl_ca_file": "/own.pem"}

    chosen, _ = choose({**NOTHING, **own}, lambda _: None, SECURED)

    assert {name: chosen[name] for name in own} == own
    assert chosen["port"] == 19043


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """One that is announced; nobody answers at its port."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("CASSIEQ_CONTACT_POINTS", "CASSIEQ_CONFIG", "CASSIEQ_PORT"):
        monkeypatch.delenv(name, raising=False)
    background = Background()
    with background.hold():
        running = Running(pid=os.getpid(), contact_points=["127.0.0.1"], port=2)
        background.announce(running)
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "own.toml"
    found.write_text('[cassandra]\ncontact-points = "127.0.0.1:3"\nkeyspace = "of_the_file"\n')
    return found


def test_an_option_goes_before_a_variable_that_before_the_file_that_before_the_node(
    node: Running, file: Path, monkeypatch: pytest.MonkeyPatch
):
    words = ["queue", "list"]

    of_the_node = cassieq(*words).err
    of_the_file = cassieq(*words, "--config", str(file)).err
    monkeypatch.setenv("CASSIEQ_CONTACT_POINTS", "127.0.0.1:4")
    of_the_variable = cassieq(*words, "--config", str(file)).err
    of_the_option = cassieq(*words, "--contact-points", "127.0.0.1:5").err

    assert "at 127.0.0.1:2:" in of_the_node
    assert of_the_node.endswith("[the node is started by 'cassieq node up']\n")
    assert "at 127.0.0.1:3:" in of_the_file
    assert of_the_file.endswith(f"[the address comes from {file}]\n")
    assert "at 127.0.0.1:4:" in of_the_variable
    assert of_the_variable.endswith("[the address comes from CASSIEQ_CONTACT_POINTS]\n")
    assert "at 127.0.0.1:5:" in of_the_option
    assert of_the_option.endswith("[the address comes from --contact-points]\n")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_file_may_be_named_anywhere_on_the_line(file: Path, at: int):
    words = ["queue", "list"]
    words[at:at] = ["--config", str(file)]

    assert "at 127.0.0.1:3:" in cassieq(*words).err


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("is_on_line", [False, True])
@pytest.mark.usefixtures("node")
def test_a_file_takes_nothing_from_the_one_that_it_replaces(
    file: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_on_line: bool
):
    other = file.with_name("other.toml")
    other.write_text('[cassandra]\nkeyspace = "of_the_other"\n')
    words = ["queue", "list", "-v"]
    words[at:at] = ["--config", str(other)]
    if is_on_line:
        words[:0] = ["--config", str(file)]
    else:
        monkeypatch.setenv("CASSIEQ_CONFIG", str(file))

    told, _ = cassieq(*words).err.splitlines()

    assert told.endswith("127.0.0.1:2 (started by 'cassieq node up'), keyspace of_the_other")


def test_the_file_of_the_variable_is_not_opened_if_the_line_names_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CASSIEQ_CONFIG", "/nowhere.toml")

    assert "at 127.0.0.1:3:" in cassieq("queue", "list", "--config", str(file)).err
    assert "/nowhere.toml" in cassieq("queue", "list").err


@pytest.mark.parametrize("at", [0, 1, 2])
def test_if_asked_a_command_says_which_cassandra_it_uses(node: Running, at: int):
    words = ["queue", "list"]
    words[at:at] = ["-v"]

    told, _ = cassieq(*words).err.splitlines()

    assert told == "Cassandra at 127.0.0.1:2 (started by 'cassieq node up'), keyspace cassieq"


def test_unasked_it_says_so_on_a_terminal_only(node: Running):
    piped = cassieq("queue", "list").err.splitlines()
    seen = on_terminal("queue", "list", columns=300)

    assert len(piped) == 1
    assert seen.lines[0].startswith("Cassandra at 127.0.0.1:2 (started by 'cassieq node up')")


def test_without_any_name_the_error_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("CASSIEQ_CONTACT_POINTS", raising=False)
    nobody = "no node answers"
    monkeypatch.setattr(
        "cassieq_spark.cli.queue.open_store", lambda _: (_ for _ in ()).throw(ConnectError(nobody))
    )

    told = cassieq("queue", "list").err

    assert told.startswith(f"cassieq: {nobody} [this is the default address")
    assert "cassieq node up --detach" in told


def test_an_error_of_the_arguments_does_not_name_a_cassandra(node: Running):
    assert "Cassandra" not in cassieq("queue", "alter", "orders").err
