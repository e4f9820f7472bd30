"""Schedules: messages that are put again and again, at times that are known beforehand.

    queue's row: schedules -> runner: ticks that have come -> sink of the schedule: once, in order

A schedule is a text in the row of its queue. A tick is a batch of a sink that only this schedule
has, and the number of the batch is the tick, in milliseconds, after the number of alters of the
schedule. So the compare-and-set that publishes a message also says that its tick is done, and the
sink's row is all that a runner needs to know. The content of a message follows from schedule and
tick.

| event | result |
|---|---|
| several runners | one publishes a tick; the others find it published |
| a runner dies | another one publishes the next tick, a second later |
| all runners stop | the first that starts publishes what is missing, as ``catch_up`` says |
| a runner that was paused goes on | a later tick was published: its own is refused |
| the answer to a publish is lost | the next look reads the sink, and goes on from there |
| a clock jumps back | nothing is published until it has passed the last tick |
| a clock jumps ahead | the server's clock decides, as the earlier one of the two |
| both clocks were ahead | ticks came early, and do not come again |
| a queue is purged | sinks are copied, so no tick comes again |
| a schedule is altered | its sink refuses what runners have planned before |
| an alter breaks off | the first runner that reads the new settings ends the old ones |
| a schedule is deleted and made again | another sink; it has no tick before its creation |
"""

from __future__ import annotations

from cassieq_spark.schedules.changes import (
    alter_schedule,
    create_schedule,
    delete_schedule,
    list_schedules,
    pause_schedule,
    plan_alter,
    plan_schedule,
    read_schedule,
    read_schedules,
    resume_schedule,
)
from cassieq_spark.schedules.progress import (
    ScheduleProgress,
    list_progress,
    read_schedule_progress,
    read_schedules_progress,
    run_now,
)
from cassieq_spark.schedules.runner import Published, Runner
from cassieq_spark.schedules.schedule import Schedule

__all__ = [
    "Published",
    "Runner",
    "Schedule",
    "ScheduleProgress",
    "alter_schedule",
    "create_schedule",
    "delete_schedule",
    "list_progress",
    "list_schedules",
    "pause_schedule",
    "plan_alter",
    "plan_schedule",
    "read_schedule",
    "read_schedule_progress",
    "read_schedules",
    "read_schedules_progress",
    "resume_schedule",
    "run_now",
]
