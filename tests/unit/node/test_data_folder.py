from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from cassieq_spark.errors import SetupError
from cassieq_spark.node import Release
from cassieq_spark.node.configure import (
    can_pass_page_cache,
    lock_data,
    read_storage_port,
    write_description,
)


def test_a_new_folder_has_no_port_yet(tmp_path: Path):
    assert read_storage_port(tmp_path, nodes=1, release=Release.V5_0) is None


def test_a_new_folder_is_for_its_user_alone(tmp_path: Path):
    folder = tmp_path / "data"

    lock_data(folder).close()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("release", Release)
def test_nodes_of_the_same_or_a_later_release_go_on_with_the_data(
    tmp_path: Path, release: Release
):
    write_description(tmp_path, nodes=3, release=Release.V4_1, storage_port=7001)

    assert read_storage_port(tmp_path, nodes=3, release=release) == 7001


def test_data_of_a_later_release_are_refused(tmp_path: Path):
    write_description(tmp_path, nodes=1, release=Release.V5_0, storage_port=7000)

    with pytest.raises(SetupError, match=r"holds data of Cassandra 5\.0, which 4\.1 can't read"):
        read_storage_port(tmp_path, nodes=1, release=Release.V4_1)


def test_data_that_were_kept_before_releases_were_noted_are_of_the_default_one(tmp_path: Path):
    (tmp_path / "cluster.json").write_text(json.dumps({"nodes": 1, "storage_port": 7000}))

    assert read_storage_port(tmp_path, nodes=1, release=Release.V5_0) == 7000
    with pytest.raises(SetupError, match=r"which 4\.1 can't read"):
        read_storage_port(tmp_path, nodes=1, release=Release.V4_1)


def test_another_number_of_nodes_is_refused(tmp_path: Path):
    write_description(tmp_path, nodes=1, release=Release.V5_0, storage_port=7000)

    with pytest.raises(SetupError, match=r"the data of 1 node\(s\), not of 3"):
        read_storage_port(tmp_path, nodes=3, release=Release.V5_0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": 1, "storage_port": 1, "release": 9}'])
def test_a_description_that_makes_no_sense_is_named(tmp_path: Path, text: str):
    (tmp_path / "cluster.json").write_text(text)

    with pytest.raises(SetupError, match=r"cluster\.json is not readable"):
        read_storage_port(tmp_path, nodes=1, release=Release.V5_0)


@pytest.mark.parametrize("can", [True, False])
def test_whether_the_page_cache_can_be_passed_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool
):
    really_open = os.open

    def open_if_it_can(path: Path, flags: int) -> int:
        assert flags & os.O_DIRECT
        if not can:
            raise OSError(errno.EINVAL, "Invalid argument", str(path))
        return really_open(path, flags & ~os.O_DIRECT)

    monkeypatch.setattr(os, "open", open_if_it_can)

    assert can_pass_page_cache(tmp_path) == can
    assert list(tmp_path.iterdir()) == []
