"""The workflows run what `make` runs, and a release is published without a token.

`make lint` checks them by GitHub's schema.
"""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

import cassieq_spark
from tests.docs.pages import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.yml")}
PINNED = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")
TARGETS = re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def made_by(job: dict[str, Any]) -> list[str]:
    """What its steps make."""
    lines = [
        line.strip() for step in job.get("steps", ()) for line in step.get("run", "").split("\n")
    ]
    words = [line.split()[1:] for line in lines if line.startswith("make ")]
    return [word for each in words for word in each if "=" not in word]


def test_every_target_of_a_workflow_is_one_of_the_makefile():
    made = {
        target
        for workflow in WORKFLOWS.values()
        for job in workflow["jobs"].values()
        for target in made_by(job)
    }

    assert {"check", "test", "docs", "build", "docs-version"} <= made <= set(TARGETS)


def test_the_workflow_of_a_change_runs_what_a_change_must_pass():
    made = {target for job in WORKFLOWS["ci"]["jobs"].values() for target in made_by(job)}

    lines = re.findall(r"^make (.+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    must_pass = {word for line in lines for word in line.split() if not word.startswith("--")}
    assert {"check", "docs", "test"} == must_pass <= made


def test_a_release_is_published_after_all_checks_and_by_an_identity_instead_of_a_token():
    jobs = WORKFLOWS["release"]["jobs"]

    assert (jobs["ci"]["needs"], jobs["ci"]["uses"]) == ("version", "./.github/workflows/ci.yml")
    assert (jobs["publish"]["needs"], jobs["site"]["needs"]) == ("ci", "publish")
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (FOLDER / "release.yml").read_text()


def test_only_the_job_that_needs_a_right_has_it():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
    rights = {
        name: job["permissions"]
        for name, job in WORKFLOWS["release"]["jobs"].items()
        if "permissions" in job
    }

    assert rights == {"publish": {"id-token": "write"}, "site": {"contents": "write"}}


def test_what_others_have_written_is_named_by_its_digest():
    """A branch or a tag may be moved; a step beside it would run what it then is."""
    for name, workflow in WORKFLOWS.items():
        for job in workflow["jobs"].values():
            for used in [job.get("uses"), *(step.get("uses") for step in job.get("steps", ()))]:
                assert used is None or used.startswith("./") or PINNED.fullmatch(used), name


def test_no_step_leaves_a_token_for_those_behind_it():
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            for step in job.get("steps", ()):
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False
    *before, last = WORKFLOWS["release"]["jobs"]["site"]["steps"]
    assert "github.token" not in str(before)
    assert "make" not in last["run"]


@pytest.mark.parametrize("version", ["9.9.9", f"{cassieq_spark.__version__}1", ""])
def test_a_tag_of_another_version_is_refused(version: str):
    command = ["make", "--silent", "release-version", f"VERSION={version}"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode
    assert f"has another version than {version}" in done.stderr
