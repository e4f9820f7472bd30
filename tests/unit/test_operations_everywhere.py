"""What the client does, commands and console do as well, by the client; or it says why not.

The gateway's side is in integration/gateway/test_http_as_client.py, and verbs in
settings/test_verbs.py.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import cassieq_spark
from cassieq_spark.client import Client
from cassieq_spark.console.dead import OF_DEAD
from cassieq_spark.console.group_plans import MAKING, OF_GROUP
from cassieq_spark.console.plans import OF_QUEUE
from cassieq_spark.console.schedule_plans import SCHEDULING
from cassieq_spark.console.schedules import OF_SCHEDULE
from tests.support.command_line import commands

PACKAGE = Path(cassieq_spark.__file__).parent
METHODS = {name for name, _ in inspect.getmembers(Client, callable) if not name.startswith("_")}
#: Of the client itself, and not of its queues.
OF_PROGRAMS = {
    "close": "ends the client",
    "exchange": "for the gateway",
    "from_store": "for tests",
    "queue_names": "a part of queues",
    "queue_with_attributes": "for the SQS door",
    "receiver": "for cassieq receive",
    "settle": "the commands are its actions",
    "stored": "a part of stats",
}
#: Commands of methods whose name is not VERB_NOUN; a method without a command, and why.
COMMANDS = {
    "attributes": "queue attributes",
    "dead_letters": "dead list",
    "fix_clocks": "queue fix-clocks",
    "groups": "group list",
    "producer": "put",
    "purge_dead_letters": "dead purge",
    "put_many": "put",
    "queue": "queue show",
    "queues": "queue list",
    "redrive": "dead redrive",
    "run_schedule_now": "schedule run-now",
    "schedule": "schedule show",
    "schedule_runner": "schedule run",
    "schedules": "schedule list",
    "set_attributes": "queue attributes",
    "stats": "queue stats",
}
NO_COMMAND = {
    "message": "peek --from shows it",
    "receive_table": "cassieq receive prints rows as JSON",
    "replace": "a command cannot hold what it puts in the place of another one",
    "stopped": "group list and group resume --dry-run show them",
}
#: The changes of the console, by what they change; and those of methods that are not VERB_NOUN.
OFFERED = {
    "queue": {*OF_QUEUE, "alter", "create"},
    "group": {*OF_GROUP, *(each.removesuffix("-group") for each in MAKING)},
    "schedule": {*OF_SCHEDULE, *(each.removesuffix("-schedule") for each in SCHEDULING)},
    "dead": {*OF_DEAD},
}
CHANGES = {
    "purge_dead_letters": ("dead", "purge"),
    "redrive": ("dead", "redrive"),
    "run_schedule_now": ("schedule", "run"),
}
NO_CHANGE = {
    "fix_clocks": "for who has corrected the clock, at its machine",
    "schedule_runner": "a gateway runs schedules",
    "set_attributes": "the console shows what programs keep there",
    **dict.fromkeys(("put", "put_many", "producer"), "the console puts no messages"),
    **dict.fromkeys(
        ("receive", "receive_table", "ack", "release", "extend", "reject", "replace"),
        "the console leases nothing",
    ),
    **dict.fromkeys(
        [
            *("attributes", "dead_letters", "groups", "history", "message", "peek", "queue"),
            *("queues", "schedule", "schedules", "stats", "stopped"),
        ],
        "its pages show it",
    ),
}
#: What is called like something that changes queues, groups, letters or schedules.
CHANGING = re.compile(
    r"(alter|claim|create|delete|fix|pause|publish|purge|put|redrive|resume|run|seek|set|settle"
    r"|write)(_|$)"
)
BELOW = {"queues", "groups", "ledger", "producer", "consumer", "dead_letters", "schedules"}
#: Imports of such functions from below the client, and why.
NOT_BY_THE_CLIENT = {
    ("cli/dead.py", "purge"): "shows how far it is, and stops between two batches",
    ("cli/dead.py", "redrive"): "shows how far it is, and stops between two batches",
}


def test_each_method_has_a_command_or_a_reason_why_not():
    named = METHODS - {*OF_PROGRAMS, *NO_COMMAND}
    usual = {name: " ".join(reversed(name.split("_", 1))) for name in named}

    assert {*COMMANDS, *NO_COMMAND, *OF_PROGRAMS} <= METHODS
    assert {COMMANDS.get(name, usual[name]) for name in named} <= commands().keys()


def test_each_method_is_a_change_of_the_console_or_has_a_reason_why_not():
    changing = METHODS - {*OF_PROGRAMS, *NO_CHANGE}
    usual = {name: tuple(reversed(name.split("_", 1))) for name in changing}

    assert {*CHANGES, *NO_CHANGE, *OF_PROGRAMS} <= METHODS
    offered = {(noun, verb) for noun, verbs in OFFERED.items() for verb in verbs}
    assert {CHANGES.get(name, usual[name]) for name in changing} == offered


@pytest.mark.parametrize("folder", ["cli", "console"])
def test_commands_and_console_change_things_by_the_client(folder: str):
    found = {
        (path.relative_to(PACKAGE).as_posix(), function)
        for path in (PACKAGE / folder).glob("*.py")
        for function in _functions_from_below(path)
        if CHANGING.match(function)
    }

    assert found == {each for each in NOT_BY_THE_CLIENT if each[0].startswith(folder)}


def _functions_from_below(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[1:2] in (
            [each] for each in BELOW
        ):
            module = import_module(node.module or "")
            found = (getattr(module, each.name) for each in node.names)
            yield from (each.__name__ for each in found if inspect.isfunction(each))
