from __future__ import annotations

from pathlib import Path

import pytest

from cassieq_spark.errors import SetupError
from cassieq_spark.node.java import find_java, major_version


def make_java(folder: Path, banner: str):
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "17" 2021-09-14', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "11.0.22" 2024', 11),
        ("bash: java: command not found", None),
    ],
)
def test_the_major_version_is_read_from_the_banner(banner: str, major: int | None):
    assert major_version(banner) == major


def test_java_home_comes_before_the_path(tmp_path: Path):
    at_home = make_java(tmp_path / "home", 'openjdk version "17.0.1"')
    on_path = make_java(tmp_path / "path", 'openjdk version "17.0.2"')

    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})

    assert found == at_home


def test_a_java_home_of_another_version_is_passed_over(tmp_path: Path):
    make_java(tmp_path / "home", 'openjdk version "21.0.1"')
    on_path = make_java(tmp_path / "path", 'openjdk version "17.0.2"')

    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})

    assert found == on_path


def test_other_versions_are_named_in_the_error_with_what_to_do(tmp_path: Path):
    java = make_java(tmp_path, 'openjdk version "21.0.1"')

    with pytest.raises(SetupError) as raised:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})

    assert f"{java} (JAVA_HOME) is Java 21" in str(raised.value)
    assert "needs Java 17" in str(raised.value)
    assert "openjdk-17-jre-headless" in str(raised.value)


def test_no_java_at_all_is_said_so():
    with pytest.raises(SetupError, match="no Java at all"):
        find_java({"PATH": ""})
