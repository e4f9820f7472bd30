from __future__ import annotations

from dataclasses import fields

import pytest

from cassieq_spark.cli.options import with_options
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.declaration import settings_of
from cassieq_spark.settings.gateway import Limits
from tests.support.command_line import cassieq

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
    run(**defaults)
    run(**{**defaults, "max_head": "1k", "max_polls": "7"})

    assert got == [Limits(), Limits(head_bytes=1024, polls=7)]


def test_a_limit_that_is_none_is_refused_before_anything_is_reached():
    done = cassieq("gateway", "serve", "--secret", SECRET, "--max-head", "many")

    assert done.code == 2
    assert "--max-head must be a size such as 64k or 1m" in done.err
    with pytest.raises(OptionError, match="at least 1"):
        Limits(key_polls=0)
