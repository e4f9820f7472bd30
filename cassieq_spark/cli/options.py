"""How commands get their options: from the settings, from the kinds of values, and from a file."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.declaration import Setting, explain, parse_value, settings_of
from cassieq_spark.settings.file import CASSANDRA, GATEWAY, REPAIR, read_settings
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.settings.kinds import Kind, duration

_Command = TypeVar("_Command", bound=Callable[..., None])

#: The options of reaching Cassandra are shown together under this heading.
CASSANDRA_PANEL = "Cassandra"
#: So are the limits of a gateway.
LIMITS_PANEL = "Limits"
#: So are the options of the repair that a configuration file may set.
REPAIR_PANEL = "Repair"
#: Under which heading help shows the options that a table of the configuration file sets.
_PANELS = {CASSANDRA: CASSANDRA_PANEL, GATEWAY: LIMITS_PANEL, REPAIR: REPAIR_PANEL}
#: Which tables have the settings of a class.
_DECLARED = {CASSANDRA: ConnectionOptions, GATEWAY: Limits}

#: How long a program that shows figures or answers requests waits for Cassandra.
_PATIENCE = timedelta(seconds=5)
_ADDRESS = re.compile(r"(\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\s]+)):(?P<port>[0-9]{1,5})")
_HIGHEST_PORT = 65_535

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
QueueName = Annotated[str, typer.Argument(help="Name of the queue.", show_default=False)]
OnlyQueues = Annotated[
    list[str],
    typer.Option("--queue", help="Only this one; may be repeated.", show_default="all queues"),
]


class Value:
    """Annotation of an option whose text is read by a kind: ``Annotated[timedelta, Value(...)]``.

    The default is a value of the kind, or None. What cannot be read is an `OptionError`.
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
            kind: How its text is read, and its default is shown.
            meaning: For ``--help`` and docs/cli.md.
            name: With the dashes; that of the parameter if None.
            without: What holds if it is left out and its default is None.
            panel: Heading under which it is shown.
        """
        self.kind, self.meaning, self.name = kind, meaning, name
        self.without, self.panel = without, panel

    def parameter(self, parameter: inspect.Parameter) -> inspect.Parameter:
        """The same parameter, as typer knows it: a text."""
        default = parameter.default
        is_given = default is not None and default is not inspect.Parameter.empty
        info = typer.Option(
            # Named: typer 0.27 would take a metavar that spells the name for it.
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
        """The value of a text; None of None."""
        name = self.name or _dashed(parameter)
        return None if text is None else parse_value(name, self.kind, text)


def _dashed(parameter: str) -> str:
    return "--" + parameter.replace("_", "-")


def command(
    app: typer.Typer, name: str | None = None, **groups: Callable[..., Any]
) -> Callable[[_Command], _Command]:
    """Make a function a command of an app.

    Its parameters are those of a command of typer, and besides:

    - ``connection: ConnectionOptions`` and ``limits: Limits`` stand for the flags of all settings
      of that class;
    - one that is annotated with a `Value` gets what the kind has read.

    Args:
        app: Gets the command.
        name: Of the command; that of the function if None.
        groups: For other parameters: a function whose parameters are options of the command, and
            which makes the value of them.
    """

    def register(function: _Command) -> _Command:
        app.command(name)(with_options(function, **groups))
        return function

    return register


def with_options(function: Callable[..., Any], **groups: Callable[..., Any]) -> Callable[..., Any]:
    """The function as typer takes it; see `command`."""
    own: dict[str, inspect.Parameter] = {}
    grouped: dict[str, inspect.Parameter] = {}
    readers: dict[str, Callable[[dict[str, Any]], Any]] = {}
    of_classes = {ConnectionOptions: _connection, Limits: _limits}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        group = groups.get(parameter.name) or of_classes.get(parameter.annotation)
        if group is not None:
            inner = with_options(group)
            theirs = inspect.signature(inner).parameters
            grouped |= theirs
            readers[parameter.name] = functools.partial(_call, inner, tuple(theirs))
        elif value := _value_of(parameter.annotation):
            own[parameter.name] = value.parameter(parameter)
            readers[parameter.name] = functools.partial(_read, value, parameter.name)
        else:
            own[parameter.name] = parameter

    @functools.wraps(function)
    def run(**given: Any) -> Any:
        values = {name: each for name, each in given.items() if name in own}
        return function(**values | {name: read(given) for name, read in readers.items()})

    seen = own | grouped
    # typer reads both; `functools.wraps` has pointed them at the function.
    run.__annotations__ = {name: one.annotation for name, one in seen.items()}
    vars(run)["__signature__"] = inspect.Signature(
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in seen.values()]
    )
    del vars(run)["__wrapped__"]
    return run


def _value_of(annotation: Any) -> Value | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((each for each in get_args(annotation) if isinstance(each, Value)), None)


def _call(build: Callable[..., Any], names: tuple[str, ...], given: dict[str, Any]) -> Any:
    return build(**{name: given[name] for name in names})


def _read(value: Value, name: str, given: dict[str, Any]) -> Any:
    return value.read(name, given[name])


def _flags(
    cls: type[Any], build: Callable[..., Any], panel: str, without: Mapping[str, str]
) -> Callable[..., Any]:
    """A function whose parameters are the settings of a class as flags.

    Args:
        cls: A dataclass; each of its settings has a default.
        build: Makes the value, of values by attribute.
        panel: Heading under which the flags are shown.
        without: What commands do if a setting is left out, where that is their own.
    """
    settings = {str(item.flag).replace("-", "_"): item for item in settings_of(cls)}

    def read(**given: Any) -> Any:
        return build(
            **{
                settings[name].attribute: _parsed(settings[name], value)
                for name, value in given.items()
            }
        )

    vars(read)["__signature__"] = inspect.Signature(
        [_flag(name, item, panel, without.get(name)) for name, item in settings.items()]
    )
    return read


def _parsed(item: Setting, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    return parse_value(f"--{item.flag}", item.kind, str(value), secret=item.secret)


def _flag(name: str, item: Setting, panel: str, without: str | None) -> inspect.Parameter:
    default, names = item.default, f"--{item.flag}"
    least, most = item.kind.bounds or (None, None)
    kind: Any = str
    if isinstance(default, bool):
        kind = bool
        names = f"{names}/--no-{item.flag}" if default else names
    elif least is not None:
        kind = int
    elif default is not None:
        default = item.kind.show(default)
    info = typer.Option(
        names,
        help=item.meaning,
        metavar=item.kind.metavar if kind is str else None,
        min=least,
        max=most,
        envvar=item.variable,
        show_envvar=False,
        show_default=default is not None or without or item.without or False,
        rich_help_panel=panel,
    )
    annotation = kind | None if default is None else kind
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, info],
    )


def _connect_with(**given: Any) -> ConnectionOptions:
    if given["username"] is not None and given["password"] is None:
        question = f"Password of {given['username']}"
        given["password"] = typer.prompt(question, hide_input=True)
    return ConnectionOptions(**given)


_connection = _flags(ConnectionOptions, _connect_with, CASSANDRA_PANEL, {"password": "asked for"})
_limits = _flags(Limits, Limits, LIMITS_PANEL, {})


def impatient(connection: ConnectionOptions) -> ConnectionOptions:
    """The same, but calls give up soon: the command reports an outage instead of waiting."""
    return replace(connection, request_timeout=_PATIENCE, patience=_PATIENCE)


def configured(path: Path, root: Any) -> dict[str, Any]:
    """The defaults of a command, and of those below it, that a configuration file makes.

    A table of the file has the options that help shows under the heading of `_PANELS`.

    Raises:
        OptionError: The file can't be read, or has a setting or a value that is none.
    """
    known: dict[str, Collection[str]] = {
        table: [str(item.flag) for item in settings_of(cls)] for table, cls in _DECLARED.items()
    }
    known[REPAIR] = _names_under(_PANELS[REPAIR], root)
    found = read_settings(path, known)
    for table, cls in _DECLARED.items():
        items = {str(item.flag): item for item in settings_of(cls)}
        found[table] = {
            name: _text(f"configuration {path}: {name!r} of [{table}]", items[name], value)
            for name, value in found[table].items()
        }
    return _defaults(found, root)


def _text(where: str, item: Setting, value: str | int | bool) -> str | bool:
    """A value of a file as a command takes it: checked, and a text unless it is a flag."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        parsed = item.kind.parse(text)
    except ValueError as error:
        shown = "what is there" if item.secret else repr(value)
        raise OptionError(where + explain(item.kind, shown, error)) from error
    return parsed if isinstance(parsed, bool) else text


def _names_under(panel: str, command: Any) -> list[str]:
    """The options of a command, and of those below it, that help shows under a heading."""
    if hasattr(command, "commands"):
        return [name for it in command.commands.values() for name in _names_under(panel, it)]
    named = (it for it in command.params if getattr(it, "rich_help_panel", None) == panel)
    return [str(each.name).replace("_", "-") for each in named]


def _defaults(settings: Mapping[str, Mapping[str, Any]], command: Any) -> dict[str, Any]:
    if hasattr(command, "commands"):
        return {name: _defaults(settings, it) for name, it in command.commands.items()}
    return {
        each.name: values[name]
        for table, values in settings.items()
        for each in command.params
        if getattr(each, "rich_help_panel", None) == _PANELS[table]
        and (name := str(each.name).replace("_", "-")) in values
    }


@dataclass(frozen=True, slots=True)
class Address:
    """Where a program answers."""

    host: str
    port: int


def _parse_address(text: str) -> Address:
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > _HIGHEST_PORT:
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
