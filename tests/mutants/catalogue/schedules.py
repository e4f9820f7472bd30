"""Mutants of schedules: when they tick, which ticks are published, and how often."""

from __future__ import annotations

from tests.mutants.changes import (
    always,
    compare,
    drop_condition,
    drop_statement,
    never,
    replace,
    replace_call,
    value,
)
from tests.mutants.mutant import Mutant

_TICKS = ("property/test_ticks_property.py",)
_CRON = ("unit/schedules/test_cron.py",)
_SCHEDULE = ("unit/schedules/test_schedule.py",)
_CHANGES = ("unit/schedules/test_changes.py",)
_ALTERS = (
    "unit/schedules/test_alter.py",
    "property/test_altered_schedules_property.py",
)
_RUNNER = ("unit/schedules/test_runner.py",)
_RACES = ("property/test_schedules_property.py",)

SCHEDULES = (
    # -- ticks --------------------------------------------------------------------------------
    Mutant(
        "a local time that does not exist is an hour after the jump",
        "ticks at local times",
        "schedules.timing:first_shown",
        never("_A_SECOND"),
        _CRON,
    ),
    Mutant(
        "times that the clocks leave out tick at the same instant again",
        "ticks at local times",
        "schedules.timing:AtLocalTimes.after",
        compare(">", ">=", of="last"),
        _TICKS,
    ),
    Mutant(
        "a day need match both day fields",
        "ticks at local times",
        "schedules.cron:Cron._has",
        never("either"),
        _CRON,
    ),
    Mutant(
        "a schedule ticks at its end",
        "ticks at local times",
        "schedules.schedule:Schedule.ticks_after",
        compare(">=", ">", of="end"),
        _SCHEDULE,
    ),
    Mutant(
        "jitter differs from runner to runner",
        "each tick once",
        "schedules.schedule:Schedule.due_at",
        value("id(self).to_bytes(8, 'big')", of="seed", nth=1),
        _SCHEDULE,
    ),
    # -- what is due --------------------------------------------------------------------------
    Mutant(
        "ticks that are published ahead take the place of late ones",
        "catch-up",
        "schedules.due:due_ticks",
        value("len(in_time)", of="have_come", nth=1),
        _SCHEDULE,
    ),
    Mutant(
        "the oldest late ticks are caught up",
        "catch-up",
        "schedules.due:due_ticks",
        replace("list(late)[-room:]", "list(late)[:room]"),
        _SCHEDULE,
    ),
    Mutant(
        "after a long outage, ticks that may be caught up are left out",
        "catch-up",
        "schedules.due:_left_out",
        replace("max(1, schedule.catch_up)", "0"),
        _SCHEDULE,
    ),
    Mutant(
        "ticks that jitter holds back are not shown as those to come",
        "catch-up",
        "schedules.due:next_ticks",
        replace("now - schedule.jitter", "now"),
        _SCHEDULE,
    ),
    Mutant(
        "ticks that never come are lag",
        "catch-up",
        "schedules.due:oldest_overdue",
        replace("schedule.catch_up or now - due_at <= LATE", "True"),
        _SCHEDULE,
    ),
    Mutant(
        "a tick comes before its time",
        "catch-up",
        "schedules.due:due_ticks",
        replace("tick.due_at - schedule.ahead", "tick.due_at - schedule.ahead - LATE"),
        _RUNNER,
    ),
    # -- each tick once -----------------------------------------------------------------------
    Mutant(
        "a tick is published without its number",
        "each tick once",
        "schedules.publish:publish_tick",
        replace("batch", "None"),
        _RUNNER,
    ),
    Mutant(
        "a schedule has the sink of the one that had its name",
        "each tick once",
        "schedules.schedule:Schedule.sink",
        value("f'schedule:{self.name}'"),
        _CHANGES,
    ),
    Mutant(
        "a runner believes its own clock alone",
        "each tick once",
        "schedules.runner:Runner._serve",
        replace_call("min", "now"),
        _RUNNER,
    ),
    Mutant(
        "a clock that was ahead stops a runner",
        "each tick once",
        "schedules.runner:Runner._learn",
        drop_statement("_known", nth=1),
        _RUNNER,
    ),
    Mutant(
        "a runner goes on after another one has taken over",
        "each tick once",
        "schedules.runner:Runner._serve",
        never("is_mine"),
        (*_RUNNER, *_RACES),
    ),
    Mutant(
        "a runner that is told to stop goes on",
        "the end of a runner",
        "schedules.runner:Runner._look",
        drop_condition("may_continue"),
        _RUNNER,
    ),
    Mutant(
        "an account with many ticks delays those of others",
        "turns of accounts",
        "schedules.runner:Runner._look",
        replace_call("account_of", "None"),
        _RUNNER,
    ),
    Mutant(
        "a look lasts until all ticks are published",
        "turns of accounts",
        "schedules.runner:Runner._look",
        drop_condition("is_over"),
        _RUNNER,
    ),
    Mutant(
        "each look begins with the same schedules",
        "turns of accounts",
        "schedules.runner:Runner._serve_all",
        drop_statement("pop"),
        _RUNNER,
    ),
    Mutant(
        "runners race for every tick",
        "the cost of schedules",
        "schedules.runner:Runner._waits",
        value("timedelta(0)", of="_politeness"),
        _RUNNER,
    ),
    # -- alters -------------------------------------------------------------------------------
    Mutant(
        "an alter answers while runners may publish by the old settings",
        "alters of schedules",
        "schedules.changes:alter_schedule",
        drop_statement("end_generations_before"),
        _ALTERS,
    ),
    Mutant(
        "a runner does not finish an alter that broke off",
        "alters of schedules",
        "schedules.runner:Runner._serve",
        drop_statement("end_generations_before"),
        _ALTERS,
    ),
    Mutant(
        "ticks of new times come that are before the change",
        "alters of schedules",
        "schedules.schedule:altered_schedule",
        never("_has_other_ticks"),
        _ALTERS,
    ),
    Mutant(
        "another end loses ticks that have come",
        "alters of schedules",
        "schedules.schedule:altered_schedule",
        always("_has_other_ticks"),
        _ALTERS,
    ),
    Mutant(
        "the sink does not tell the ticks of two generations apart",
        "alters of schedules",
        "schedules.schedule:Schedule.number_of",
        value("to_millis(tick)"),
        _ALTERS,
    ),
    Mutant(
        "the last tick is lost with the generation",
        "alters of schedules",
        "schedules.publish:end_generations_before",
        value("schedule.number_of(FIRST_INSTANT)", of="number", nth=1),
        _ALTERS,
    ),
    # -- changes ------------------------------------------------------------------------------
    Mutant(
        "a resumed schedule makes up for its pause",
        "pauses of schedules",
        "schedules.changes:_update",
        value("old.since", of="since", nth=1),
        _CHANGES,
    ),
    Mutant(
        "a schedule begins by the later of two clocks",
        "pauses of schedules",
        "schedules.changes:_present",
        replace("min", "max"),
        _CHANGES,
    ),
    Mutant(
        "a queue that is made again has the schedules of the old one",
        "pauses of schedules",
        "queues.lifecycle:create_queue",
        replace("'schedules'", "'attributes'"),
        _CHANGES,
    ),
)
