"""The commands and the program of docs/gateway.md run as they stand; the files in deploy/ fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from cassieq_spark.cli import app
from cassieq_spark.http.gateway.app import ENDPOINTS
from cassieq_spark.http.gateway.openapi import description
from cassieq_spark.settings.gateway import Limits
from tests.docs.pages import ROOT, blocks_of
from tests.support.command_line import cassieq, repair_job
from tests.support.gateway import SECRET, RunningGateway, running_on_memory

PAGE = "docs/gateway.md"
URL = "http://127.0.0.1:8080"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.fixture
def gateway(tmp_path: Path):
    with running_on_memory(tmp_path / "log") as gateway:
        yield gateway


def test_the_commands_and_the_program_run_as_they_stand(gateway: RunningGateway, tmp_path: Path):
    (tmp_path / "gateway.secret").write_text(SECRET + "\n")
    shell = "\n".join(block.text for block in blocks_of(PAGE) if block.language == "bash")
    program = "\n".join(block.text for block in blocks_of(PAGE) if block.language == "python")
    script = f"set -euo pipefail\n{shell}\nexport GATEWAY KEY\nexec {sys.executable} program.py\n"
    (tmp_path / "script").write_text(script.replace(URL, gateway.url))
    given = "import os\nGATEWAY, KEY = os.environ['GATEWAY'], os.environ['KEY']\n"
    (tmp_path / "program.py").write_text(given + program)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "script"],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "b'hello' {'lang': 'en'}" in done.stdout
    assert '{"start": 2, "stop": 4}'.replace(" ", "") in done.stdout
    assert '"message":"an order"' in (tmp_path / "message").read_text()
    assert (tmp_path / "body").read_bytes() == b"one"
    # By Python's standard library, and by openssl.
    assert "put: b'{" in done.stdout
    peeked = json.loads((tmp_path / "peeked").read_text())
    assert ("signed in a shell", "ada") in {(each["message"], each["key"]) for each in peeked}
    log = [json.loads(line) for line in gateway.log.read_text().splitlines()]
    assert {each["status"] for each in log} <= {200, 201, 204}
    lines = (tmp_path / "messages").read_text().splitlines()
    assert [json.loads(line)["message"] for line in lines][-2:] == ["one", "two"]


def test_the_limits_are_those_of_the_code():
    limits = Limits()

    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in TEXT.splitlines()]
    told = {row[0].partition(";")[0].partition(",")[0]: row[1:] for row in rows if len(row) > 2}
    assert told["bytes of a message"][0] == f"{limits.body_bytes >> 20} MiB"
    assert told["bytes of a batch"][0] == f"{limits.batch_bytes >> 20} MiB"
    assert told["messages of a batch"][0] == f"{limits.batch_count:,}"
    assert told["bytes of the request line and all headers"][0] == f"{limits.head_bytes >> 10} KiB"
    assert told["headers of a request"][0] == f"{limits.header_count}"
    head_time = f"{limits.head_time.total_seconds():.0f} s"
    assert told["time until the headers are complete"][0] == head_time
    assert told["bytes a second of a body"][0] == f"{limits.body_rate >> 10} KiB"
    assert told["connections at a time"][0] == f"{limits.connections:,}"
    of_address = told["connections from one address (IPv6: one /64)"]
    assert of_address[0] == f"{limits.address_connections:,}"
    assert told["`wait`"][0] == f"{limits.wait.total_seconds():.0f} s"


def test_the_quotas_are_those_of_the_code():
    limits, table = Limits(), TEXT.split("### Quotas")[1]

    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    told = {row[0].partition(",")[0]: row[1:] for row in rows if len(row) == 4}

    def shown(values: tuple[int, int, int], unit: int = 1, name: str = "") -> list[str]:
        return [f"{value // unit:,}{name}" for value in values]

    requests = (limits.requests, limits.account_requests, limits.key_requests)
    held = (limits.held_bytes, limits.account_bytes, limits.key_bytes)
    polls = (limits.polls, limits.account_polls, limits.key_polls)
    assert told["requests at a time"] == shown(requests)
    assert told["bytes of bodies at a time"] == shown(held, 1 << 20, " MiB")
    assert told["long polls at a time"] == shown(polls)
    assert told["queues"] == ["", f"{limits.account_queues:,}", ""]
    assert told["schedules"] == ["", f"{limits.account_schedules:,}", ""]
    assert told["messages stored"] == ["", f"{limits.account_messages:,}", ""]
    assert told["bytes of these messages"] == ["", f"{limits.account_stored_bytes >> 30} GiB", ""]


def test_every_status_is_told():
    told = {
        status
        for row in TEXT.split("## What it answers")[1].split("\n## ")[0].splitlines()
        if row.startswith("| ")
        for status in row.split(" | ")[0].strip("| ").split(", ")
    }

    paths = description(ENDPOINTS)["paths"].values()
    answered = {
        status for path in paths for method in path.values() for status in method["responses"]
    }
    assert answered <= told


def test_the_files_of_deploy_run_commands_that_there_are():
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    docker = (ROOT / "deploy" / "Dockerfile").read_text()
    (standing,) = (line for line in docker.splitlines() if line.startswith("CMD "))
    commands = [
        service["command"] for service in compose["services"].values() if "build" in service
    ]

    assert len(commands) == 3
    for words in (json.loads(standing.removeprefix("CMD ")), *commands):
        command = typer.main.get_command(app).commands[words[0]].commands[words[1]]
        command.make_context(words[1], words[2:])
        if words[0] == "repair":
            repair_job(words[2:])
    published = [port for each in compose["services"].values() for port in each.get("ports", ())]
    # What is served there takes in /admin and /metrics.
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert 'ENTRYPOINT ["cassieq"]' in docker
    for line in docker.splitlines():
        if line.startswith("COPY "):
            assert all((ROOT / name).exists() for name in line.split()[1:-1]), line


def test_a_secret_is_made_for_its_user_alone_and_good_enough(tmp_path: Path):
    file = tmp_path / "secret"

    made, again = cassieq("gateway", "secret", str(file)), cassieq("gateway", "secret", str(file))
    key = cassieq("gateway", "admin-key", "--secret", f"file:{file}")

    assert (made.code, again.code) == (0, 2)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "is not overwritten" in again.err
    assert (key.code, len(key.out.strip()), key.err) == (0, 86, "")


def test_a_secret_that_others_may_read_is_told(tmp_path: Path):
    file = tmp_path / "secret"
    file.write_text(cassieq("gateway", "secret").out)
    file.chmod(0o644)

    key = cassieq("gateway", "admin-key", "--secret", f"file:{file}")

    assert key.code == 0
    assert f"chmod 600 {file}" in key.err


@pytest.mark.parametrize("given", ["short", SECRET, "/run/secrets/of-all-the-gateways-here"])
def test_a_secret_is_given_by_reference_only(given: str):
    refused = cassieq("gateway", "admin-key", "--secret", given)

    assert (refused.code, refused.out) == (2, "")
    assert "env:NAME or file:PATH" in refused.err
    assert given not in refused.err
