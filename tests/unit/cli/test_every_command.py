"""What holds for every command: JSON, help, and errors without a stack trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cassieq_spark import __version__
from cassieq_spark.cli import documentation as page
from tests.support.command_line import cassieq, commands, likely_words, options_of

DOCS = Path(__file__).parents[3] / "docs" / "cli.md"
COMMANDS = commands()
#: They print no result: they serve until they are stopped, show figures, or help.
WITHOUT_RESULT = {"console", "exporter", "gateway serve", "help", "top"}
#: The options are those of the repair job, which are tested there.
OF_THE_JOB = {"repair run"}
NOWHERE = ["--contact-points", "127.0.0.1:1"]


CONNECTING = [
    name
    for name, each in COMMANDS.items()
    if "--contact-points" in options_of(each) and name not in WITHOUT_RESULT
]


@pytest.mark.parametrize("name", COMMANDS.keys() - WITHOUT_RESULT - OF_THE_JOB)
def test_a_command_prints_json_if_asked(name: str):
    assert "--json" in options_of(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_and_what_its_options_are_for(name: str):
    command = COMMANDS[name]

    assert command.help
    assert [each.name for each in command.params if not (each.help or each.hidden)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_has_each_of_its_names_once(name: str):
    named = [[*each.opts, *each.secondary_opts] for each in COMMANDS[name].params]

    assert [names for names in named if len(names) > len(set(names))] == []


@pytest.mark.parametrize("name", CONNECTING)
def test_without_a_cluster_a_command_says_so_in_one_line(name: str):
    ended = cassieq(*likely_words(name, COMMANDS[name]), *NOWHERE)

    # Of the repair, 1 means that messages are lost.
    code, program = (2, "repair") if name in OF_THE_JOB else (1, "cassieq")
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(f"{program}: no node answers at 127.0.0.1:1")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "complaint", "code"),
    [
        (["--contact-points", "host:port"], "contact point 'host:port' is not valid", 2),
        (["--keyspace", "No-Such"], "keyspace 'No-Such' is not valid", 2),
        (["--consistency", "ONE"], "ONE", 2),
        (["--password", "env:NOPE"], "a password needs a user name", 2),
        ([*NOWHERE, "--username", "anna", "--password", "env:CASSIEQ_NO_SUCH"], "NO_SUCH", 1),
        ([*NOWHERE, "--ssl-ca-file", "/nowhere.pem"], "/nowhere.pem", 1),
        (["--secure-connect-bundle", "/nowhere.zip"], "/nowhere.zip", 1),
    ],
)
def test_what_is_wrong_with_the_way_to_the_cluster_is_one_line(
    options: list[str], complaint: str, code: int
):
    ended = cassieq("queue", "list", *options)

    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("cassieq: ")
    assert complaint in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_an_example_and_its_help_fits_a_narrow_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "40")

    ended = cassieq(*name.split(), "--help")

    assert (ended.code, ended.err) == (0, "")
    prose, _, rest = ended.out.partition("\nExamples:\n")
    assert f"  cassieq {name}" in rest.partition("\n\n")[0], "an example"
    # Examples are there to be copied, so they are not wrapped.
    text = (prose.partition("\n")[2] + rest.partition("\n\n")[2]).splitlines()
    names = {word for param in COMMANDS[name].params for word in param.opts}
    assert [line for line in text if len(line) > 40 and line.split()[0] not in names] == []
    assert not any("─" <= each <= "╿" for each in ended.out), "boxes"


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_with_a_value_says_what_the_value_is(name: str):
    without = [
        each.name
        for each in COMMANDS[name].params
        if each.param_type_name == "option" and not each.is_flag and not each.metavar
    ]

    assert without == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_tells_of_every_command_what_its_own_option_tells(name: str):
    assert cassieq("help", *name.split()).out == cassieq(*name.split(), "--help").out


def test_help_tells_how_a_command_finds_cassandra():
    told = cassieq("help", "connection").out

    assert "the node that 'cassieq node up --detach' runs" in " ".join(told.split())
    assert "--contact-points" in told
    assert "CASSIEQ_SSL_CA_FILE" in told


def test_help_of_what_there_is_not_is_wrong_usage():
    ended = cassieq("help", "queue", "crate")

    assert (ended.code, ended.out) == (2, "")
    assert "did you mean 'create'?" in ended.err


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_there_is_not_is_wrong_usage(name: str):
    ended = cassieq(*likely_words(name, COMMANDS[name]), "--colour", "red")

    assert (ended.code, ended.out) == (2, "")
    assert "--colour" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("queue create", "Missing argument"),
        ("queue create orders --chunk-size many", "--chunk-size"),
        ("queue create orders --max-deliveries -1", "--max-deliveries"),
        ("queue frobnicate", "frobnicate"),
        ("dead show orders first", "monoton"),
        ("group seek orders billing", "--to"),
        ("node up --nodes 9", "--nodes"),
        ("put orders --file /no/such/file", "/no/such/file"),
        ("receive orders", "--group"),
        ("repair history --limit 0", "--limit"),
        ("schema grants everybody me", "everybody"),
        ("queue list --port 0", "--port"),
    ],
)
def test_what_can_not_be_a_value_is_wrong_usage(arguments: str, complaint: str):
    ended = cassieq(*arguments.split())

    assert (ended.code, ended.out) == (2, "")
    # Releases of typer name an argument in small letters or in capitals.
    assert complaint.lower() in ended.err.lower()
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("queue create orders --expire-after soon", "--expire-after must be a duration"),
        ("queue create orders --drop-dead --dead-letter-queue x", "dead-letter queue 'x' cannot"),
        ("queue alter orders", "there is nothing to alter"),
        ("queue alter orders --order key", "the order can't be altered"),
        ("queue alter orders --bucket-size 10", "the bucket size can't be altered"),
        ("group create orders billing --from noon", "--from must be"),
        ("group seek orders billing --to noon", "--to must be"),
        ("group resume orders billing --retry --drop", "exclude each other"),
        ("dead redrive orders --to= --yes", "--to is empty"),
        ("dead purge orders --reason= --yes", "--reason is empty"),
        ("dead purge orders --group= --yes", "--group is empty"),
        ("queue alter orders --dead-letter-queue=", "--dead-letter-queue is empty"),
        ("queue create orders --dead-letter-queue=", "--dead-letter-queue is empty"),
        ("dead redrive orders --rate fast", "--rate must be messages per time"),
        ("dead list orders --since tomorrow", "--since must be an instant"),
        ("dead list orders --since 1h --until 2h", "--since is not before --until"),
        ("put orders hello --file pyproject.toml", "only one of them"),
        ("put orders hello -", "only one of them"),
        ("put orders hello --follow", "--follow is for standard input"),
        ("put orders hello --header colour", "--header must be NAME=VALUE"),
        ("put orders hello --delay soon", "--delay must be a duration"),
        ("receive orders --group g --wait soon", "--wait must be a duration"),
        ("receive orders --group g --keep --release", "exclude each other"),
        ("receive orders --group g --parallel 2", "are for --exec"),
        ("receive orders --group g --exec cat --json", "--exec decides itself"),
        ("group seek orders billing --to 2w", "--to must be"),
        ("peek orders --from noon", "--from must be"),
        ("queue stats orders@1", "queue name 'orders@1' is not valid"),
        ("group delete orders a/b --yes", "group name 'a/b' is not valid"),
        ("ack nonsense", "'nonsense' is not a receipt; 'cassieq receive --receipts' prints"),
        ("extend --by 5m - nonsense", "give either receipts, or -"),
    ],
)
def test_what_contradicts_itself_is_told_in_one_line_before_anything_is_asked(
    arguments: str, complaint: str
):
    ended = cassieq(*arguments.split())

    assert (ended.code, ended.out) == (2, "")
    assert complaint in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("more", [[], ["--detach"]])
def test_a_folder_that_cannot_be_written_is_told_before_anything_is_downloaded(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("CASSIEQ_MAVEN_REPOSITORY", (tmp_path / "nowhere").as_uri())

    ended = cassieq("node", "up", "--data-dir", "/proc/no/such", *more)

    assert ended.code == 1
    assert "/proc/no/such" in ended.err
    assert ended.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_real_process_says_nothing_but_that_line():
    done = subprocess.run(
        [sys.executable, "-m", "cassieq_spark.cli", "queue", "list", *NOWHERE],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cassieq: no node answers")
    assert done.stderr.count("\n") == 1


def test_the_version_is_told():
    ended = cassieq("--version")

    assert (ended.code, ended.out) == (0, f"cassieq {__version__}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_be_taught_to_complete(shell: str, tmp_path: Path):
    home = os.environ | {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }

    done = subprocess.run(
        [sys.executable, "-m", "cassieq_spark.cli", "--install-completion", shell],
        capture_output=True,
        text=True,
        env=home,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    scripts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_CASSIEQ_COMPLETE" in script for script in scripts)


def test_the_shell_is_told_what_there_is():
    asks = {"_CASSIEQ_COMPLETE": "complete_bash", "COMP_WORDS": "cassieq queue pu"}

    done = subprocess.run(
        [sys.executable, "-m", "cassieq_spark.cli"],
        capture_output=True,
        text=True,
        env=os.environ | asks | {"COMP_CWORD": "2"},
        check=False,
    )

    assert done.stdout.split() == ["purge"]


def test_the_docs_are_what_the_commands_say():
    assert DOCS.read_text(encoding="utf-8") == page.documentation(), (
        "run: python -m cassieq_spark.cli.documentation > docs/cli.md"
    )


def test_the_docs_have_every_command_and_every_option():
    text = page.documentation()

    for name, command in COMMANDS.items():
        assert f"\n## cassieq {name}" in text
        shown = [each for each in command.params if not each.hidden and each.name != "help"]
        options = [option.strip() for each in shown for option in each.opts if option.strip()]
        assert [each for each in options if each.startswith("-") and each not in text] == []
