from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cassieq_spark.cli import app
from cassieq_spark.cli.flags import LIMITS_PANEL
from cassieq_spark.cli.options import with_options
from cassieq_spark.errors import OptionError
from cassieq_spark.http.gateway import Serving
from cassieq_spark.settings.declaration import settings_of
from cassieq_spark.settings.gateway import Limits
from tests.support.command_line import cassieq, repair_context

SECRET = "a-secret-of-32-characters-or-more"


def test_every_limit_is_an_option():
    declared = {item.attribute: item for item in settings_of(Limits)}

    assert set(declared) == {field.name for field in fields(Limits)}
    assert all(
        item.kind.parse(item.kind.show(item.default)) == item.default for item in declared.values()
    )


def test_limits_are_read_as_they_are_declared():
    got: list[Limits] = []

    def command(*, limits: Limits) -> None:
        got.append(limits)

    run = with_options(command)
    defaults = {
        str(item.flag).replace("-", "_"): item.kind.show(item.default)
        for item in settings_of(Limits)
    }
    context = repair_context([])
    run(context=context, **defaults)
    run(context=context, **{**defaults, "max_head": "1k", "max_polls": "7"})

    assert got == [Limits(), Limits(head_bytes=1024, polls=7)]


def test_a_limit_that_is_none_is_refused_before_anything_is_reached():
    done = cassieq("gateway", "serve", "--secret", SECRET, "--max-head", "many")

    assert done.code == 2
    assert "--max-head must be a size such as 64k or 1m" in done.err
    with pytest.raises(OptionError, match="at least 1"):
        Limits(key_polls=0)


def test_every_option_under_the_heading_of_the_limits_may_be_in_a_file_or_a_variable():
    serve = get_command(app).commands["gateway"].commands["serve"]  # type: ignore[attr-defined]
    shown = [it for it in serve.params if getattr(it, "rich_help_panel", None) == LIMITS_PANEL]

    assert {it.name.replace("_", "-"): it.envvar for it in shown} == {
        item.flag: item.variable for item in settings_of(Limits)
    }


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--sqs-url", "https://queues.example"], "add --sqs, or leave them out"),
        (["--sqs-unsigned", "dev"], "add --sqs, or leave them out"),
        (["--sqs", "--sqs-url", "queues.example"], "--sqs-url must be such as https://"),
        (["--sqs", "--sqs-url", "https://queues.example/?a"], "--sqs-url must be such as"),
    ],
)
def test_the_beginning_of_queue_urls_is_one(tmp_path: Path, words: list[str], problem: str):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)

    done = cassieq("gateway", "serve", "--secret", f"file:{secret}", *words)

    assert done.code != 0
    assert problem in done.err


@pytest.mark.parametrize("where", [{"host": "0.0.0.0"}, {"proxies": ["127.0.0.1"]}])
def test_requests_must_be_signed_if_others_can_send_some(where: dict[str, Any]):
    assert Serving(sqs=True, sqs_unsigned="dev", host="::1")
    with pytest.raises(OptionError, match="for this machine alone"):
        Serving(sqs=True, sqs_unsigned="dev", **where)
