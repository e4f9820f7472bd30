from __future__ import annotations

from pathlib import Path

import pytest

from cassieq_spark.errors import CassieqError, OptionError, SetupError
from cassieq_spark.settings.secret import check_secret, reveal


@pytest.mark.parametrize("text", ["hunter2", "a b:c", "", "ENV:X", "environment", " file:x"])
def test_what_does_not_begin_like_a_reference_is_the_secret_itself(text: str):
    check_secret("password", text)

    assert reveal("password", text) == text


def test_a_secret_is_read_from_the_environment_when_it_is_needed(monkeypatch: pytest.MonkeyPatch):
    for secret in ("hunter2", "env:OTHER", " with blanks "):
        monkeypatch.setenv("OF_A_TEST", secret)
        assert reveal("password", "env:OF_A_TEST") == secret


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_is_read_from_a_file_without_the_end_of_its_line(tmp_path: Path, end: str):
    file = tmp_path / "pass word"
    file.write_bytes(f"hünter 2 {end}".encode())

    assert reveal("password", f"file:{file}") == "hünter 2 "


@pytest.mark.parametrize("text", ["env:", "env:TWO WORDS", "env:1X", "env:X\n", "file:", "file: "])
def test_a_malformed_reference_is_refused_without_showing_it(text: str):
    with pytest.raises(OptionError, match="expected env:NAME or file:PATH") as refused:
        check_secret("password", text)

    assert text.partition(":")[2].strip() in ("", "X") or text not in str(refused.value)


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OF_A_TEST", raising=False)

    with pytest.raises(SetupError, match="variable OF_A_TEST, which this process does not have"):
        reveal("password", "env:OF_A_TEST")


@pytest.mark.parametrize("content", [None, b"", b"\n", b"hunter2\xff"])
def test_a_file_without_a_secret_is_named_and_nothing_of_it_shown(
    tmp_path: Path, content: bytes | None
):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(SetupError, match=str(file)) as refused:
        reveal("password", f"file:{file}")

    seen: BaseException | None = refused.value
    while seen is not None:
        assert "hunter2" not in repr(seen)
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def test_a_folder_is_no_secret(tmp_path: Path):
    with pytest.raises(CassieqError, match="cannot be read: Is a directory"):
        reveal("password", f"file:{tmp_path}")
