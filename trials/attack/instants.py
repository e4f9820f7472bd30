"""Instants, delays and numbers that no store and no program can hold."""

from __future__ import annotations

from trials.attack.stage import Stage, attack, lines
from trials.attack.verdicts import Seen, contained_if, refused_if


def _put(stage: Stage, **params: str) -> Seen:
    queue = stage.queue()
    putter = stage.key_with("PutMessage", queue=queue)
    told = [
        putter.ask("POST", f"/{queue}/messages", content="x", params=params),
        putter.ask(
            "POST", f"/{queue}/messages/batch", content=lines({"message": "x"}), params=params
        ),
    ]
    statuses = [each.status_code for each in told]
    is_refused = all(400 <= each < 500 for each in statuses)
    return refused_if(is_refused and stage.serves(queue), statuses)


@attack
def the_last_instant(stage: Stage) -> Seen:
    """Delivered on the last day of all, in a time zone that makes it later."""
    return _put(stage, visibleAt="9999-12-31T23:59:59-23:59")


@attack
def the_first_instant(stage: Stage) -> Seen:
    """Delivered on the first day of all, in a time zone that makes it earlier: so at once."""
    queue = stage.queue()
    putter = stage.key_with("PutMessage", queue=queue)
    told = putter.ask(
        "POST",
        f"/{queue}/messages",
        content="x",
        params={"visibleAt": "0001-01-01T00:00:00+14:00"},
    )
    return contained_if(told.is_client_error or stage.serves(queue), told.status_code)


@attack
def a_far_instant(stage: Stage) -> Seen:
    """Delivered in the year 9000."""
    return _put(stage, visibleAt="9000-01-01T00:00:00Z")


@attack
def delays_without_end(stage: Stage) -> Seen:
    """Delayed for longer than a double can say."""
    seen = [_put(stage, initialInvisibilitySeconds=each) for each in ("1e308", "inf", "nan")]
    return refused_if(all(each.verdict == "refused" for each in seen), seen[0].told)


@attack
def instants_to_look_for(stage: Stage) -> Seen:
    """Dead letters and messages since instants out of range."""
    queue = stage.queue()
    instants = ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00")
    told = [
        stage.victim.ask("GET", f"/{queue}/{what}", params={name: at})
        for at in instants
        for what, name in (("dead", "since"), ("dead", "until"), ("messages", "start"))
    ]
    statuses = [each.status_code for each in told]
    return refused_if(max(statuses) < 500 and stage.serves(queue), statuses)
