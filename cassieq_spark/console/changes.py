"""Changes: a page requests each, shows its effect, and requests a confirmation.

    its form -> its effect, in counts (reads only) -> the same form, sealed -> done

A confirmation is sealed, with the version of the queue that was shown: a form that comes twice,
late, or for a queue that was purged meanwhile, changes nothing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from cassieq_spark.client import Client
from cassieq_spark.console.access import ConsoleRefusedError
from cassieq_spark.console.dead import OF_DEAD
from cassieq_spark.console.group_plans import MAKING, OF_GROUP
from cassieq_spark.console.pages import PageCall, flag, page
from cassieq_spark.console.plans import OF_QUEUE, Change, ChangePlan
from cassieq_spark.console.schedule_plans import SCHEDULING
from cassieq_spark.console.schedules import OF_SCHEDULE
from cassieq_spark.console.settings_plans import ALTER, CREATE, fields_of_new
from cassieq_spark.errors import NotFoundError, OptionError

logger = logging.getLogger(__name__)

#: A user of the console has changed something.
CHANGED = "console.changed"

#: How long a confirmation is valid, in seconds.
_SURE_SECONDS = 600
#: Fields of a form that are not about the change.
_OF_CONFIRMATION = frozenset({"token", "step", "seal", "sure_until", "typed"})


@page("/create")
def create(call: PageCall) -> Response:
    """The form of a new queue."""
    _check_allowed(call, "cassieq queue create NAME")
    return call.render("create.html", fields=fields_of_new())


@page("/create", "POST")
def do_create(call: PageCall) -> Response:
    """Plan a new queue, or create it."""
    return _change(call, CREATE)


@page("/queues/{queue}/change/{change}", "POST")
def change_queue(call: PageCall) -> Response:
    """Plan a change of a queue, or do it."""
    return _change(call, _named({**OF_QUEUE, "alter": ALTER, **MAKING, **SCHEDULING}, call))


@page("/queues/{queue}/groups/{group}/change/{change}", "POST")
def change_group(call: PageCall) -> Response:
    """Plan a change of a group, or do it."""
    return _change(call, _named(OF_GROUP, call))


@page("/queues/{queue}/dead/change/{change}", "POST")
def change_dead(call: PageCall) -> Response:
    """Plan a change of dead letters, or do it."""
    return _change(call, _named(OF_DEAD, call))


@page("/queues/{queue}/schedules/{schedule}/change/{change}", "POST")
def change_schedule(call: PageCall) -> Response:
    """Plan a change of a schedule, or do it."""
    return _change(call, _named(OF_SCHEDULE, call))


def _named(changes: Mapping[str, Change], call: PageCall) -> Change:
    found = changes.get(call.name("change"))
    if found is None:
        raise NotFoundError(f"there is no change {call.name('change')!r}")
    return found


def _check_allowed(call: PageCall, command: str) -> None:
    if not call.console.allow_changes:
        raise ConsoleRefusedError(
            "this console only looks: start it with --allow-changes, or change it on the command "
            f"line: {command}"
        )


def _change(call: PageCall, change: Change) -> Response:
    _check_allowed(call, "cassieq --help")
    plan = change.plan(call)
    if call.form.get("step") == "do":
        _check_sure(call, plan)
        try:
            said = change.apply(call, Client.from_store(call.console.store))
        finally:
            call.console.watcher.forget(call.request.path_params.get("queue", ""))
        logger.info(
            "%s (by the console)",
            said,
            extra={
                "action": CHANGED,
                "queue": call.request.path_params.get("queue", call.asked("name")),
                "client": call.request.client.host if call.request.client else None,
            },
        )
        return call.redirect(change.after(call), said)
    sealed = _sealed_text(call, plan)
    kept = {
        name: text
        for name, text in call.form.items()
        if name not in {*_OF_CONFIRMATION, "force", *plan.values}
    }
    return call.render(
        "confirm.html",
        200,
        change=change,
        plan=plan,
        kept=kept | dict(plan.values),
        forced=flag("force", call),
        until=sealed[0],
        seal=call.console.access.seal(sealed[1]),
        back=change.after(call) if change is not CREATE else call.url("create"),
    )


def _sealed_text(call: PageCall, plan: ChangePlan, until: int | None = None) -> tuple[int, str]:
    """The text that a confirmation seals: this change, planned from this state, for a while."""
    until = int(time.time()) + _SURE_SECONDS if until is None else until
    fields = {name: text for name, text in call.form.items() if name not in _OF_CONFIRMATION}
    fields |= plan.values if call.form.get("step") != "do" else {}
    whole: list[Any] = [call.request.url.path, plan.about, sorted(fields.items()), until]
    return until, json.dumps(whole)


def _check_sure(call: PageCall, plan: ChangePlan) -> None:
    until = call.number("sure_until", 0)
    _, text = _sealed_text(call, plan, until)
    if until < time.time() or not call.console.access.is_sealed(text, call.form.get("seal", "")):
        raise ConsoleRefusedError(
            "this confirmation does not hold any more: it is older than ten minutes, or what it "
            "was for has changed meanwhile; go back, look again, and confirm what you see then",
            409,
        )
    if plan.type_name is not None and call.form.get("typed", "").strip() != plan.type_name:
        raise OptionError(
            f"type the name {plan.type_name!r} to confirm, not {call.form.get('typed', '')!r}; "
            "nothing was changed"
        )
