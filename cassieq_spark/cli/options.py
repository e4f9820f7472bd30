"""How commands are declared: their options, with kinds of values and with settings."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from cassieq_spark.cli.complete import complete_groups, complete_queues
from cassieq_spark.cli.connection import CONNECTION, tell_where, telling_where
from cassieq_spark.cli.flags import LIMITS_PANEL, Config, Verbose, flags_of
from cassieq_spark.cli.help import HelpfulCommand, HelpfulGroup
from cassieq_spark.errors import OptionError
from cassieq_spark.model import validate_name
from cassieq_spark.settings.connection import HIGHEST_PORT, ConnectionOptions
from cassieq_spark.settings.declaration import parse_value
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.settings.kinds import Kind, duration
from cassieq_spark.settings.position import StartingPosition, parse_position, show_position

_Command = TypeVar("_Command", bound=Callable[..., None])

_OF_CLASSES = {
    ConnectionOptions: CONNECTION,
    Limits: flags_of(Limits, lambda context, **limits: Limits(**limits), LIMITS_PANEL, {}),  # noqa: ARG005 (given to every one)
}
_OLDEST = timedelta(days=36_500)
_AGO = duration(_OLDEST)
_AGE_PART = re.compile(r"[0-9]{1,19}(ms|[smhd])", re.IGNORECASE)
#: An age as tables show it: 2h 5m.
_AGE = re.compile(rf"\s*({_AGE_PART.pattern}\s*)+", re.IGNORECASE)
_ADDRESS = re.compile(r"(\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\s]+)):(?P<port>[0-9]{1,5})")

#: Headings in the list of commands, for commands in no group.
MESSAGES_PANEL, WATCH_PANEL = "Messages", "Watch"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def checked(what: str) -> Callable[[typer.Context, str], str]:
    """A callback that refuses impossible names before the command connects to anything."""

    def check(context: typer.Context, name: str) -> str:
        return name if context.resilient_parsing else validate_name(what, name)

    return check


QueueName = Annotated[
    str,
    typer.Argument(
        help="Name of the queue.",
        metavar="QUEUE",
        autocompletion=complete_queues,
        callback=checked("queue"),
    ),
]
GroupName = Annotated[
    str,
    typer.Argument(
        help="Name of the consumer group.",
        metavar="GROUP",
        autocompletion=complete_groups,
        callback=checked("group"),
    ),
]
OnlyQueues = Annotated[
    list[str],
    typer.Option(
        "--queue",
        help="Only this queue. Repeatable.",
        metavar="QUEUE",
        show_default="all queues",
        autocompletion=complete_queues,
    ),
]


class Value:
    """Annotation of an option whose text a kind reads: ``Annotated[timedelta, Value(...)]``.

    The default is a value of the kind, or None. A text that cannot be read is an `OptionError`.
    """

    def __init__(
        self,
        kind: Kind[Any],
        meaning: str,
        *,
        name: str | None = None,
        without: str | bool = False,
        panel: str | None = None,
    ) -> None:
        """Declare the option.

        Args:
            kind: Reads the text, and shows the default.
            meaning: The text for ``--help`` and docs/cli.md.
            name: The name with the dashes; None for that of the parameter.
            without: What holds if the option is left out and its default is None.
            panel: Heading under which the option is shown.
        """
        self.kind, self.meaning, self.name = kind, meaning, name
        self.without, self.panel = without, panel

    def parameter(self, parameter: inspect.Parameter) -> inspect.Parameter:
        """The same parameter as typer knows it: a text."""
        default = parameter.default
        is_given = default is not None and default is not inspect.Parameter.empty
        info = typer.Option(
            self.name or _dashed(parameter.name),
            help=self.meaning,
            metavar=self.kind.metavar,
            show_default=True if is_given else self.without,
            rich_help_panel=self.panel,
        )
        return parameter.replace(
            annotation=Annotated[str | None if default is None else str, info],
            default=self.kind.show(default) if is_given else default,
        )

    def read(self, parameter: str, text: str | None) -> Any:
        """The value of a text; None for None."""
        name = self.name or _dashed(parameter)
        return None if text is None else parse_value(name, self.kind, text)


def _dashed(parameter: str) -> str:
    return "--" + parameter.replace("_", "-")


def make_app(meaning: str) -> typer.Typer:
    """Make a group of commands.

    Args:
        meaning: What the commands do, for ``--help``.
    """
    app = typer.Typer(cls=HelpfulGroup, no_args_is_help=True, rich_markup_mode=None)
    # With a callback, a group of a single command stays a group; and --config may come before the
    # name of the command.
    app.callback(help=meaning)(_shared)
    return app


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    panel: str | None = None,
    **groups: Callable[..., Any],
) -> Callable[[_Command], _Command]:
    """Make a function a command of an app.

    The parameters are those of a command of typer, and in addition:

    - ``connection: ConnectionOptions`` and ``limits: Limits`` stand for the flags of all settings
      of that class;
    - a parameter annotated with a `Value` gets what the kind has read.

    Args:
        app: The app that gets the command.
        name: The name of the command; None for that of the function.
        panel: Heading under which the help of the group shows the command.
        groups: For further parameters: a function whose parameters are options of the command, and
            which makes the value from them.
    """

    def declare(function: _Command) -> _Command:
        register = app.command(name, cls=HelpfulCommand, rich_help_panel=panel)
        register(with_options(function, **groups))
        return function

    return declare


def with_options(function: Callable[..., Any], **groups: Callable[..., Any]) -> Callable[..., Any]:
    """The function as typer takes it; see `command`."""
    own: dict[str, inspect.Parameter] = {}
    seen: dict[str, inspect.Parameter] = {}
    of_classes: dict[str, inspect.Parameter] = {}
    readers: dict[str, Callable[[dict[str, Any]], Any]] = {}
    uses_settings = False
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        of_class = _OF_CLASSES.get(parameter.annotation)
        uses_settings |= of_class is not None
        if (group := groups.get(parameter.name) or of_class) is not None:
            inner = with_options(group)
            theirs = inspect.signature(inner).parameters
            (seen if of_class is None else of_classes).update(theirs)
            readers[parameter.name] = functools.partial(_call, inner, tuple(theirs))
        elif value := _value_of(parameter.annotation):
            own[parameter.name] = seen[parameter.name] = value.parameter(parameter)
            readers[parameter.name] = functools.partial(_read, value, parameter.name)
        else:
            own[parameter.name] = seen[parameter.name] = _named(parameter)

    @functools.wraps(function)
    def run(**given: Any) -> Any:
        values = {name: each for name, each in given.items() if name in own}
        values |= {name: read(given) for name, read in readers.items()}
        context = given.get("context")
        if not uses_settings or context is None:
            return function(**values)
        tell_where(context)
        with telling_where(context):
            return function(**values)

    seen |= of_classes
    if uses_settings:
        seen |= inspect.signature(_shared, eval_str=True).parameters
    # typer reads both; `functools.wraps` has pointed them at the function.
    run.__annotations__ = {name: one.annotation for name, one in seen.items()}
    vars(run)["__signature__"] = inspect.Signature(
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in seen.values()]
    )
    del vars(run)["__wrapped__"]
    return run


def _named(parameter: inspect.Parameter) -> inspect.Parameter:
    """The same parameter, with a name for its value."""
    if get_origin(parameter.annotation) is not Annotated:
        return parameter
    kind, info, *_ = get_args(parameter.annotation)
    if not isinstance(info, (OptionInfo, ArgumentInfo)) or kind is bool or info.metavar:
        return parameter
    info = copy(info)
    info.metavar = _word_for(kind)
    if isinstance(info, ArgumentInfo):
        info.metavar = parameter.name.upper()
    return parameter.replace(annotation=Annotated[kind, info])


def _word_for(kind: Any) -> str:
    """The name of a value of a type, or of a list of such values, or None."""
    inner = [each for each in get_args(kind) if each is not type(None)]
    if inner:
        return _word_for(inner[0])
    if issubclass(kind, Enum):
        return "|".join(str(each.value) for each in kind)
    return {int: "NUMBER", Path: "FILE"}.get(kind, "TEXT")


def _shared(*, config: Config = None, verbose: Verbose = False, context: typer.Context) -> None:
    """The options of every command that uses settings."""


def _value_of(annotation: Any) -> Value | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((each for each in get_args(annotation) if isinstance(each, Value)), None)


def _call(build: Callable[..., Any], names: tuple[str, ...], given: dict[str, Any]) -> Any:
    return build(**{name: given[name] for name in names})


def _read(value: Value, name: str, given: dict[str, Any]) -> Any:
    return value.read(name, given[name])


def check_not_empty(option: str, text: str | None) -> None:
    """Refuse an empty text: it would mean all, or none, where a shell variable is not set.

    Raises:
        OptionError: The text is empty.
    """
    if text == "":
        raise OptionError(f"{option} is empty: give a text, or leave the option out")


def parse_instant(text: str, now: datetime | None = None) -> datetime:
    """Read an instant, or how long it is ago, also in the form of the tables.

    >>> parse_instant("2h", datetime(2026, 11, 20, 12, tzinfo=UTC)).isoformat()
    '2026-11-20T10:00:00+00:00'
    >>> parse_instant("2h 5m", datetime(2026, 11, 20, 12, tzinfo=UTC)).isoformat()
    '2026-11-20T09:55:00+00:00'

    Raises:
        ValueError: The text is neither.
    """
    instant = parse_place(text, now)
    if not isinstance(instant, datetime):
        raise ValueError(text)  # noqa: TRY004 (the text is wrong, not its type)
    return instant


def parse_place(text: str, now: datetime | None = None) -> StartingPosition:
    """Read a position; an instant may be given as how long it is ago.

    Raises:
        ValueError: The text is no position.
    """
    if not _AGE.fullmatch(text):
        return parse_position(text)
    parts = [_AGO.parse(part[0]) for part in _AGE_PART.finditer(text)]
    if (ago := sum(parts, timedelta(0))) > _OLDEST:
        raise ValueError(text)
    return (now or datetime.now(UTC)) - ago


#: An instant.
WHEN = Kind(
    "an instant such as 2026-11-20T12:00:00Z, or how long ago, such as 2h or 30m",
    parse_instant,
    metavar="WHEN",
)
#: A position in a queue.
PLACE: Kind[StartingPosition] = Kind(
    "earliest, latest, a monoton, an instant such as 2026-11-20T12:00:00Z, or how long ago, such "
    "as 2h or 30m",
    parse_place,
    show_position,
    "POSITION",
)


@dataclass(frozen=True, slots=True)
class Address:
    """The address at which a program answers."""

    host: str
    port: int


def _parse_address(text: str) -> Address:
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > HIGHEST_PORT:
        raise ValueError(text)
    return Address(match["ipv6"] or match["host"], int(match["port"]))


def _show_address(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


DEFAULT_GATEWAY, DEFAULT_EXPORTER = Address("127.0.0.1", 8080), Address("127.0.0.1", 9108)
DEFAULT_CONSOLE = Address("127.0.0.1", 8081)
ADDRESS: Kind[Address] = Kind(
    "host:port or [ipv6]:port, such as 127.0.0.1:9108", _parse_address, _show_address, "HOST:PORT"
)
#: Pause between two readings of figures.
EVERY: Kind[timedelta] = duration(timedelta(days=1))


def name_and_value(flag: str, text: str) -> tuple[str, str]:
    """The name and the value that an option gives as one text.

    >>> name_and_value("--header", "source=web=1")
    ('source', 'web=1')

    Raises:
        OptionError: It gives no name, or no value.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise OptionError(f"{flag} must be NAME=VALUE, not {text!r}")
    return name, value
