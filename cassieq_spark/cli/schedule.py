"""``cassieq schedule``: messages that are put again and again, and the runner that puts them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from cassieq_spark.arguments import AT_ONCE
from cassieq_spark.cli.complete import complete_queues
from cassieq_spark.cli.options import AsJson, Value, Yes, checked, command, make_app
from cassieq_spark.cli.output import INTERRUPTED, ask, print_json, tell
from cassieq_spark.cli.schedule_flags import schedule_flags
from cassieq_spark.cli.tables import Column, print_record, print_table
from cassieq_spark.client import Client
from cassieq_spark.display import shown_age
from cassieq_spark.errors import OptionError
from cassieq_spark.schedules.plain import plain_progress, plain_schedule
from cassieq_spark.schedules.progress import ScheduleProgress
from cassieq_spark.schedules.runner import REFRESH, Published, Runner
from cassieq_spark.schedules.schedule import Schedule
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import whole_number
from cassieq_spark.settings.schedule import KEPT, Of, ScheduleSetting, show_instant
from cassieq_spark.signals import stopped_by_signals
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo, log_to_stderr

app = make_app("Put messages again and again, at times that are known beforehand.")

#: The settings that a table shows beside when it ticks, which is cron or every.
_SHOWN = tuple(it for it in KEPT if it.name not in {"cron", "every"})

ScheduleName = Annotated[
    str,
    typer.Argument(help="Name of the schedule.", metavar="SCHEDULE", callback=checked("schedule")),
]
OfQueue = Annotated[
    str,
    typer.Option(
        "--queue",
        help="Name of its queue.",
        metavar="QUEUE",
        autocompletion=complete_queues,
        callback=checked("queue"),
    ),
]


@command(app, settings=schedule_flags(alters=False))
def create(
    name: ScheduleName,
    *,
    connection: ConnectionOptions,
    queue: OfQueue,
    settings: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Create a schedule. A runner must run: 'cassieq schedule run', or a gateway.

    A local time that the clocks leave out comes once, when they jump; one that they show twice
    comes once, the first time.

    Examples:
        cassieq schedule create beat --queue orders --every 5m --message '{"at": "{{tick}}"}'
        cassieq schedule create daily --queue orders --cron '0 3 * * mon-fri' --message '{{date}}'
    """
    with _client(connection) as client:
        made = client.create_schedule(queue, name, **settings)
    first = next(made.ticks_after(made.since))
    tell(
        f"Schedule {name} of queue {queue} is created; it begins at {made.show(first)}.",
        _json(made),
        as_json=as_json,
    )


@command(app, changes=schedule_flags(alters=True))
def alter(
    name: ScheduleName,
    *,
    connection: ConnectionOptions,
    queue: OfQueue,
    changes: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Alter settings of a schedule; the others stay, and so does a pause.

    New times begin now, and no time comes twice. After this command, nothing is put by the old
    settings any more; what was put ahead stays. --cron replaces --every, and the reverse.

    Examples:
        cassieq schedule alter nightly --queue orders --cron '0 4 * * *'
        cassieq schedule alter beat --queue orders --message '{"at": "{{unix}}"}' --end none
    """
    if not changes:
        raise OptionError("there is nothing to alter: give a setting, such as --every 5m")
    with _client(connection) as client:
        altered = client.alter_schedule(queue, name, **changes)
        found = client.schedule(queue, name, ticks=1)
    comes = f"; it comes next at {altered.show(found.next[0])}" if found.next else ""
    tell(f"Schedule {name} of queue {queue} is altered{comes}.", _json(altered), as_json=as_json)


@command(app, "list")
def list_(
    *,
    connection: ConnectionOptions,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            help="Only those of this queue.",
            metavar="QUEUE",
            show_default="of all queues",
            autocompletion=complete_queues,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List schedules: when each came last, when it comes next, and whether it is late.

    Examples:
        cassieq schedule list
        cassieq schedule list --queue orders
    """
    with _client(connection) as client:
        found = client.schedules(queue)
    if as_json:
        print_json([_progress_json(each) for each in found])
    elif found:
        columns = [Column("queue", wraps=True), Column("schedule", wraps=True)]
        rows = [
            (it.queue, it.name, it.when, it.paused, each.last, _next(each), _late_by(each))
            for each in found
            for it in [each.schedule]
        ]
        print_table([*columns, "when", "paused", "last", "next", "late by"], rows)
    else:
        echo("There are no schedules. To create one: cassieq schedule create NAME --queue QUEUE")


@command(app)
def show(
    name: ScheduleName,
    *,
    connection: ConnectionOptions,
    queue: OfQueue,
    ticks: Annotated[int, Value(whole_number(1, 1000), "How many of its next times to show.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show a schedule: when it came last, when it comes next, and whether it is late.

    Examples:
        cassieq schedule show nightly --queue orders
    """
    with _client(connection) as client:
        found = client.schedule(queue, name, ticks=ticks)
    it = found.schedule
    if as_json:
        print_json(_progress_json(found))
        return
    print_record(
        [
            ("schedule", it.name),
            ("queue", it.queue),
            ("when", it.when),
            *(line for each in _SHOWN for line in _lines(each, getattr(it, each.name))),
            ("paused", it.paused),
            ("last", None if found.last is None else it.show(found.last)),
            ("late by", _late_by(found)),
            *(("next", it.show(at)) for at in found.next),
        ]
    )


@command(app)
def pause(
    name: ScheduleName,
    *,
    connection: ConnectionOptions,
    queue: OfQueue,
    as_json: AsJson = False,
) -> None:
    """Pause a schedule: it puts nothing until it is resumed.

    Runners learn of it within ten seconds.

    Examples:
        cassieq schedule pause nightly --queue orders
    """
    with _client(connection) as client:
        changed = client.pause_schedule(queue, name)
    tell(
        f"Schedule {name} of queue {queue} is paused{'' if changed else ' already'}. To resume "
        f"it: cassieq schedule resume {name} --queue {queue}",
        {"queue": queue, "schedule": name, "paused": True, "changed": changed},
        as_json=as_json,
    )


@command(app)
def resume(
    name: ScheduleName,
    *,
    connection: ConnectionOptions,
    queue: OfQueue,
    as_json: AsJson = False,
) -> None:
    """Resume a paused schedule; what came during the pause is not made up for.

    Examples:
        cassieq schedule resume nightly --queue orders
    """
    with _client(connection) as client:
        changed = client.resume_schedule(queue, name)
    was = "is resumed" if changed else "was not paused"
    tell(
        f"Schedule {name} of queue {queue} {was}.",
        {"queue": queue, "schedule": name, "paused": False, "changed": changed},
        as_json=as_json,
    )


@command(app, "run-now")
def run_now(
    name: ScheduleName,
    *,
    connection: ConnectionOptions,
    queue: OfQueue,
    as_json: AsJson = False,
) -> None:
    """Put a message of a schedule now, also if it is paused; its times stay as they are.

    Examples:
        cassieq schedule run-now nightly --queue orders
    """
    with _client(connection) as client:
        position = client.run_schedule_now(queue, name)
    tell(
        f"Schedule {name} has put message {position.text} into queue {queue}.",
        {
            "queue": queue,
            "schedule": name,
            "monoton": int(position),
            "partition": position.partition,
            "version": position.version,
        },
        as_json=as_json,
    )


@command(app)
def delete(
    name: ScheduleName,
    *,
    connection: ConnectionOptions,
    queue: OfQueue,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule; messages that it has put stay.

    Examples:
        cassieq schedule delete nightly --queue orders
    """
    with _client(connection) as client:
        when = client.schedule(queue, name, ticks=0).schedule.when
        ask(
            lambda: f"Delete schedule {name} of queue {queue} ({when})?",
            yes=yes,
            otherwise="give --yes to delete the schedule",
        )
        client.delete_schedule(queue, name)
    tell(
        f"Schedule {name} of queue {queue} is deleted.",
        {"queue": queue, "schedule": name, "deleted": True},
        as_json=as_json,
    )


@command(app)
def run(
    *,
    connection: ConnectionOptions,
    once: Annotated[
        bool, typer.Option("--once", help="Put what has come by now, and end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run all schedules, until SIGTERM (exit code 0) or Ctrl-C (130); print a line per message.

    Any number of runners may run, on any machines: each message is put once, and in order. If one
    ends, the others go on. If none runs, the next one puts what is missing, as far as the
    schedules catch up.

    Examples:
        cassieq schedule run
        cassieq schedule run --once
    """
    log_to_stderr()

    def told(each: Published) -> None:
        schedule, tick = each
        tell(
            f"{show_instant(tick)} {schedule.name} into queue {schedule.queue}",
            {"queue": schedule.queue, "schedule": schedule.name, "tick": show_instant(tick)},
            as_json=as_json,
        )

    with closing(open_store(connection)) as store, stopped_by_signals() as stop:
        if once:
            runner = Runner(store, politeness=AT_ONCE)
            for each in runner.run_once(may_continue=lambda: not stop.is_set()):
                told(each)
        else:
            seconds = REFRESH // timedelta(seconds=1)
            text = f"Running all schedules; new ones begin within {seconds} s. Ctrl-C ends."
            echo(text, err=True)
            Runner(store).run(stop, told)
    if stop.signal is signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _lines(it: ScheduleSetting, value: Any) -> list[tuple[str, Any]]:
    """The lines of a table that show a setting; each header has a line."""
    if it.of is Of.HEADERS:
        return [(f"header {name}", each) for name, each in value.items()]
    if value in (None, AT_ONCE):
        return [(it.label, None)]
    return [(it.label, value if it.of is Of.INSTANT else it.show(value))]


def _json(schedule: Schedule) -> dict[str, Any]:
    return {"queue": schedule.queue, **plain_schedule(schedule)}


def _progress_json(progress: ScheduleProgress) -> dict[str, Any]:
    return {"queue": progress.schedule.queue, **plain_progress(progress)}


def _next(progress: ScheduleProgress) -> datetime | None:
    return progress.next[0] if progress.next else None


def _late_by(progress: ScheduleProgress) -> str | None:
    return None if progress.lag is None else shown_age(progress.lag)


@contextmanager
def _client(connection: ConnectionOptions) -> Iterator[Client]:
    with closing(open_store(connection)) as store:
        yield Client.from_store(store)
