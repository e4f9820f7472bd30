"""The settings as flags of commands, and a configuration file as the defaults of these flags."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.declaration import Setting, explain, parse_value, settings_of
from cassieq_spark.settings.file import CASSANDRA, GATEWAY, REPAIR, VARIABLE, read_settings
from cassieq_spark.settings.gateway import Limits

#: The heading of the connection options in help.
CASSANDRA_PANEL = "Cassandra"
#: The heading of the limits of a gateway.
LIMITS_PANEL = "Limits"
#: The heading of the options of the repair that a configuration file may set.
REPAIR_PANEL = "Repair"
#: The heading of the options that each table of the configuration file sets.
_PANELS = {CASSANDRA: CASSANDRA_PANEL, GATEWAY: LIMITS_PANEL, REPAIR: REPAIR_PANEL}
#: The class whose settings each table has.
_DECLARED = {CASSANDRA: ConnectionOptions, GATEWAY: Limits}
#: How the variables of settings begin, and how alike two names are that differ by mistake.
_OURS, _ALIKE = "CASSIEQ_", 0.92

#: Keys in the meta data of a context: the configuration file, and whether -v was given.
_FILE, _VERBOSE = "cassieq.file", "cassieq.verbose"


def flags_of(
    cls: type[Any],
    build: Callable[..., Any],
    panel: str,
    without: Mapping[str, str],
) -> Callable[..., Any]:
    """A function whose parameters are the settings of a class as flags, and the context.

    Args:
        cls: A dataclass; each of its settings has a default.
        build: Makes the value from the settings by attribute, and from the context of the command.
        panel: Heading under which the flags are shown.
        without: What commands do if a setting is left out, where that differs from its default.
    """
    settings = {str(item.flag).replace("-", "_"): item for item in settings_of(cls)}

    def read(*, context: typer.Context, **given: Any) -> Any:
        check_variables(os.environ)
        values = {
            settings[name].attribute: _parsed(context, settings[name], value)
            for name, value in given.items()
        }
        return build(**values, context=context)

    parameters = [_flag(name, item, panel, without.get(name)) for name, item in settings.items()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters.append(inspect.Parameter("context", keyword, annotation=typer.Context))
    vars(read)["__signature__"] = inspect.Signature(parameters)
    return read


def given_by(context: typer.Context, item: Setting) -> str | None:
    """Name the flag, variable or file that gave a setting its value; None: it has its default."""
    source = context.get_parameter_source(str(item.flag).replace("-", "_"))
    match source.name if source else None:
        case "COMMANDLINE":
            return f"--{item.flag}"
        case "ENVIRONMENT":
            return item.variable
        case "DEFAULT_MAP":
            return str(file_of(context))
        case _:
            return None


def check_variables(environment: Iterable[str]) -> None:
    """Refuse a variable that looks like that of a setting, and is none: nothing would read it.

    Programs may have variables of their own that begin in the same way.

    Raises:
        OptionError: The name of a variable is that of a setting, but for a letter or two.
    """
    known = {VARIABLE, *(item.variable for cls in _DECLARED.values() for item in settings_of(cls))}
    for name in environment:
        if not name.startswith(_OURS) or name in known:
            continue
        if near := get_close_matches(name, known, 1, _ALIKE):
            raise OptionError(f"no setting has the variable {name}; did you mean {near[0]}?")


def is_verbose(context: typer.Context) -> bool:
    """True if ``--verbose`` was given, anywhere on the line."""
    return bool(context.meta.get(_VERBOSE))


def file_of(context: typer.Context) -> Path | None:
    """The last configuration file that the line names, or else the environment."""
    path: Path | None = context.meta.get(_FILE)
    return path


def _configure(context: typer.Context, path: Path | None) -> Path | None:
    """Take the settings of a file as defaults of the command, and of its sub-commands.

    They replace those of a file named further left on the line. The environment variable counts
    only at the last command: by then it is known whether the line names a file.
    """
    is_last = not hasattr(context.command, "commands")
    if path is None and is_last and file_of(context) is None:
        path = Path(named) if (named := os.environ.get(VARIABLE)) else None
    if path is not None:
        # A program may have defaults of its own.
        own = {} if file_of(context) else dict(context.default_map or {})
        found = configured(path, context.command, root=context.find_root().command)
        context.default_map = {**own, **found}
        context.meta[_FILE] = path
    return path


def _tell_more(context: typer.Context, is_asked: bool) -> bool:
    if is_asked:
        context.meta[_VERBOSE] = True
    return is_asked


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help=f"File with settings; options and variables override it. Without it, the file of "
        f"{VARIABLE}.",
        metavar="FILE",
        show_default=False,
        is_eager=True,
        callback=_configure,
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Say which Cassandra is used, and what names it.",
        is_eager=True,
        callback=_tell_more,
    ),
]


def _parsed(context: typer.Context, item: Setting, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    name = given_by(context, item) or f"--{item.flag}"
    return parse_value(name, item.kind, str(value), secret=item.secret)


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
        metavar=None if kind is bool else item.kind.metavar,
        min=least,
        max=most,
        envvar=item.variable,
        show_envvar=False,
        show_default=without or default is not None or item.without or False,
        rich_help_panel=panel,
    )
    annotation = kind | None if default is None else kind
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, info],
    )


def configured(path: Path, command: Any, *, root: Any) -> dict[str, Any]:
    """The defaults that a configuration file gives a command and its sub-commands.

    A table of the file has the options that help shows under the heading of `_PANELS`.

    Args:
        path: The file.
        command: The command.
        root: The program; the file may have settings of all its commands.

    Raises:
        OptionError: The file can't be read, or has an unknown setting or an impossible value.
    """
    known: dict[str, Collection[str]] = {
        table: [str(item.flag) for item in settings_of(cls)] for table, cls in _DECLARED.items()
    }
    known[REPAIR] = _names_under(REPAIR_PANEL, root)
    found = read_settings(path, known)
    for table, cls in _DECLARED.items():
        items = {str(item.flag): item for item in settings_of(cls)}
        found[table] = {
            name: _text(f"configuration {path}: {name!r} of [{table}]", items[name], value)
            for name, value in found[table].items()
        }
    return _defaults(found, command)


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
    """The options of a command and its sub-commands that help shows under a heading."""
    if hasattr(command, "commands"):
        return [name for it in command.commands.values() for name in _names_under(panel, it)]
    named = (it for it in command.params if getattr(it, "rich_help_panel", None) == panel)
    return [str(each.name).replace("_", "-") for each in named]


def _defaults(settings: Mapping[str, Mapping[str, Any]], command: Any) -> dict[str, Any]:
    if hasattr(command, "commands"):
        below = {name: _defaults(settings, it) for name, it in command.commands.items()}
        # One that has none is left out: 'help' is the name of an option, too.
        return {name: found for name, found in below.items() if found}
    return {
        each.name: values[name]
        for table, values in settings.items()
        for each in command.params
        if getattr(each, "rich_help_panel", None) == _PANELS[table]
        and (name := str(each.name).replace("_", "-")) in values
    }
