"""Options of the registry as options of commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from cassieq_spark.cli.shared import Command, shared_options
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.declaration import Option, declared_options


def declared_as_options(
    parameter: str, cls: type[Any], panel: str
) -> Callable[[Command], Command]:
    """Make a decorator that gives commands the declared options of a class.

    Args:
        parameter: Keyword parameter of the command that takes an instance of the class.
        cls: A dataclass whose fields are options; each has a default.
        panel: Under which heading the options are shown together.
    """
    declared = {item.key.replace("-", "_"): (it, item) for it, item in declared_options(cls)}

    def build(**given: str | bool) -> Any:
        values = {}
        for name, text in given.items():
            field, item = declared[name]
            if isinstance(text, bool):
                values[field.name] = text
                continue
            try:
                values[field.name] = item.kind.parse(text)
            except ValueError as error:
                raise OptionError(
                    f"--{item.key} must be {item.kind.name}, not {text!r}"
                ) from error
        return cls(**values)

    vars(build)["__signature__"] = inspect.Signature(
        [_parameter(name, field.default, item, panel) for name, (field, item) in declared.items()]
    )
    return shared_options(parameter, build)


def _parameter(name: str, default: Any, item: Option, panel: str) -> inspect.Parameter:
    if isinstance(default, bool):
        # A flag.
        info = typer.Option(f"--{item.key}", help=item.meaning, rich_help_panel=panel)
        kind: Any = bool
    else:
        info = typer.Option(help=item.meaning, rich_help_panel=panel)
        kind, default = str, item.kind.show(default)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, info],
    )
