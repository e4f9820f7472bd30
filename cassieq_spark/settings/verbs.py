"""The verbs by which programs settle messages that they hold; each is declared once.

From `VERBS` follow `client.Action`, the endpoints of the gateway and the requests of its client,
the commands, and the operations of a write of receipts. The effect of a verb on a group is defined
by the verb's field in a `Settlement`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cassieq_spark.arguments import A_MOMENT, AT_ONCE, check_duration, check_text
from cassieq_spark.errors import OptionError

#: Most characters of a text that are kept.
LONGEST_TEXT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbParameter:
    """The parameter of a verb: a duration or a text.

    Attributes:
        name: The argument of the client's method, and the flag of the command.
        meaning: One sentence of explanation.
        by_http: Its name in JSON.
        column: The column with its value in a write of receipts, and the option for all rows.
        is_duration: True if the parameter is a duration; False if it is a text.
        default: The value if the parameter is left out; None: it must be given.
        least: The shortest duration.
        example: A value, for help and descriptions.
    """

    name: str
    meaning: str
    by_http: str
    column: str
    is_duration: bool = False
    default: timedelta | None = None
    least: timedelta = AT_ONCE
    example: timedelta | str

    def check(self, given: Any) -> Any:
        """Convert a given value to the type that a settlement has; None stands for the default.

        Raises:
            OptionError: The value is missing or of a wrong type, or out of range.
        """
        if given is None:
            given = self.default
        if self.is_duration:
            return check_duration(self.name, given, least=self.least)
        if not check_text(self.name, given).strip():
            raise OptionError(f"{self.name} is empty: say what is wrong with the messages")
        return given[:LONGEST_TEXT]

    def plain(self, value: Any) -> Any:
        """Convert a value to its form in JSON; a duration is in seconds."""
        return value.total_seconds() if self.is_duration else value


@dataclass(frozen=True, slots=True)
class Verb:
    """A way to settle messages.

    Attributes:
        name: The word for the verb on every surface.
        done: The state of the messages afterwards: the field of a `Settlement`, and the word in
            the output of commands.
        meaning: One sentence of explanation, for all surfaces.
        right: The letter of the right that the verb needs over HTTP.
        parameter: Its parameter; None: it has none.
    """

    name: str
    done: str
    meaning: str
    right: str
    parameter: VerbParameter | None = None

    def check(self, given: Any) -> Any:
        """Check the value of the parameter, and return it; None if the verb has no parameter.

        Raises:
            OptionError: The parameter refuses the value, or a value is given for a verb without a
                parameter.
        """
        if self.parameter is not None:
            return self.parameter.check(given)
        if given is not None:
            raise OptionError(f"{self.name!r} takes no value: leave it out")
        return None


VERBS = {
    each.name: each
    for each in (
        Verb("ack", "acked", "Ack messages: they are done.", "a"),
        Verb(
            "release",
            "released",
            "Release messages: they are delivered again, at once or after a delay.",
            "u",
            VerbParameter(
                name="delay",
                meaning="Delay before they are delivered again.",
                by_http="delaySeconds",
                column="delay",
                is_duration=True,
                default=AT_ONCE,
                example=timedelta(minutes=1),
            ),
        ),
        Verb(
            "extend",
            "extended",
            "Extend leases: nobody else gets the messages meanwhile.",
            "u",
            VerbParameter(
                name="by",
                meaning="How long to hold them from now on.",
                by_http="seconds",
                column="seconds",
                is_duration=True,
                least=A_MOMENT,
                example=timedelta(minutes=5),
            ),
        ),
        Verb(
            "reject",
            "rejected",
            "Dead-letter messages, however often they were delivered.",
            "a",
            VerbParameter(
                name="reason",
                meaning="What is wrong with them; it is in the dead letters.",
                by_http="reason",
                column="reason",
                example="no such customer",
            ),
        ),
    )
}
