from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cassieq_spark.cli import app
from cassieq_spark.cli.flags import configured
from cassieq_spark.cli.repair import USAGE, main
from cassieq_spark.errors import OptionError
from cassieq_spark.repair.steps import Step
from cassieq_spark.settings.file import CASSANDRA, REPAIR, VARIABLE, read_settings
from tests.support.command_line import repair_context, repair_job

ROOT = Path(__file__).parents[3]
KNOWN = {CASSANDRA: ("keyspace", "port"), REPAIR: ("every",)}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "cassieq.toml"


def test_settings_are_read_by_table(config: Path):
    config.write_text('[cassandra]\nkeyspace = "k"\nport = 9043\n[repair]\nevery = "5m"\n')

    assert read_settings(config, KNOWN) == {
        CASSANDRA: {"keyspace": "k", "port": 9043},
        REPAIR: {"every": "5m"},
    }


def test_tables_may_be_missing(config: Path):
    config.write_text("")

    assert read_settings(config, KNOWN) == {CASSANDRA: {}, REPAIR: {}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[cassandra", "is not TOML"),
        ("[casandra]", "unknown table 'casandra'; did you mean 'cassandra'"),
        ("cassandra = 3", r"\[cassandra\] must be a table, not a number"),
        (
            "[cassandra]\nkeyspce = 'x'",
            "'keyspce'; did you mean 'keyspace'",
        ),
        ("[repair]\nkeyspace = 'x'", r"unknown setting of \[repair\] 'keyspace'; known: every"),
        (
            "[repair]\nevery = ['x']",
            "must be text, a whole number, true or false, not an array",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_so(config: Path, text: str, complaint: str):
    config.write_text(text)

    with pytest.raises(OptionError, match=complaint) as caught:
        read_settings(config, KNOWN)
    assert str(config) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[cassandra]\nkeyspace = ['12.75']", "not an array"),
        ("[cassandra]\nkeyspace = 12.75", "not a fraction"),
        ("[cassandra]\nkeyspace = {it = '12.75'}", "not a table"),
        ("cassandra = 'password=12.75'", "must be a table, not text"),
    ],
)
def test_a_value_of_a_wrong_type_is_not_shown_as_it_may_be_a_password(
    config: Path, text: str, complaint: str
):
    config.write_text(text)

    with pytest.raises(OptionError, match=complaint) as caught:
        read_settings(config, KNOWN)
    assert "12.75" not in str(caught.value)


def test_a_missing_file_is_named(config: Path):
    with pytest.raises(OptionError, match="No such file"):
        read_settings(config, KNOWN)


def test_arguments_of_the_repair_job_go_before_the_file(config: Path):
    config.write_text(
        '[cassandra]\nkeyspace = "k"\nport = 9043\nssl = true\nssl-check-hostname = false\n'
        '[repair]\nsteps = "fence,clean"\nscan = "connector"\n'
    )

    words = ["--config", str(config), "--port", "9044", "--steps", "clean"]

    reach, job = repair_context(words).params, repair_job(words)
    assert (reach["keyspace"], reach["port"], job.by_spark) == ("k", 9044, True)
    assert (reach["ssl"], reach["ssl_check_hostname"]) == (True, False)
    assert job.steps == (Step.CLEAN,)


def test_the_file_may_be_named_by_the_environment(config: Path, monkeypatch: pytest.MonkeyPatch):
    config.write_text('[cassandra]\nkeyspace = "k"\n')
    monkeypatch.setenv(VARIABLE, str(config))

    assert repair_context([]).params["keyspace"] == "k"


@pytest.mark.parametrize("text", ["[cassandra]\nport = 'high'", "[repair]\nscan = 'both'", "[x]"])
def test_a_file_that_makes_no_sense_is_wrong_usage_of_the_job(
    config: Path, text: str, capsys: pytest.CaptureFixture[str]
):
    config.write_text(text)

    assert main(["--config", str(config)]) == USAGE
    assert "Traceback" not in capsys.readouterr().err


def test_commands_have_the_file_as_their_defaults(config: Path):
    config.write_text('[cassandra]\nlocal-dc = "dc9"\n[repair]\nevery = "5m"\n')
    command = CliRunner()

    defaults = configured(config, _main_command(), root=_main_command())

    assert defaults["queue"]["list"] == {"local_dc": "dc9"}
    assert defaults["repair"]["run"] == {"local_dc": "dc9", "every": "5m"}
    assert "node" not in defaults
    config.write_text(
        "[cassandra]\nport = 9043\nssl = true\n[gateway]\nmax-polls = 7\nthreads = 8\n"
    )
    defaults = configured(config, _main_command(), root=_main_command())
    assert defaults["gateway"]["serve"] == {
        "port": "9043",
        "ssl": True,
        "max_polls": "7",
        "threads": "8",
    }
    assert defaults["gateway"]["account"] == {"port": "9043", "ssl": True}
    config.write_text("[cassandra]\nlocal = 'x'")
    failed = command.invoke(app, ["--config", str(config), "queue", "list"])
    assert isinstance(failed.exception, OptionError)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[cassandra]\nport = 'high'", r"'port' of \[cassandra\] must be a whole number from 1"),
        ("[cassandra]\nssl = 'maybe'", r"'ssl' of \[cassandra\] must be true or false"),
        ("[cassandra]\nconsistency = 'ONE'", r"'consistency' of \[cassandra\]: .*not supported"),
        ("[gateway]\nmax-head = 'much'", r"'max-head' of \[gateway\] must be a size"),
        ("[gateway]\nmaxhead = 1", "'maxhead'; did you mean 'max-head'"),
    ],
)
def test_a_value_that_can_not_be_one_is_told_with_the_file(
    config: Path, text: str, complaint: str
):
    config.write_text(text)

    with pytest.raises(OptionError, match=complaint) as caught:
        configured(config, _main_command(), root=_main_command())
    assert str(config) in str(caught.value)


def test_a_command_goes_by_the_file(config: Path):
    config.write_text('[cassandra]\ncontact-points = "127.0.0.1"\nport = 1\n')

    ended = CliRunner().invoke(app, ["--config", str(config), "queue", "list"])

    assert "no node answers at 127.0.0.1:1" in str(ended.exception)


def test_the_file_that_comes_with_it_is_understood():
    file = ROOT / "conf" / "cassieq.toml"

    reach = configured(file, _main_command(), root=_main_command())["queue"]["list"]
    assert reach == {"contact_points": "127.0.0.1", "keyspace": "cassieq"}
    repair_job(["--config", str(file)])


def _main_command() -> object:
    import typer.main  # noqa: PLC0415 (only here)

    return typer.main.get_command(app)
