"""Options that several commands have, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., None]


def shared_options(parameter: str, build: Callable[..., Any]) -> Callable[[Command], Command]:
    """Make a decorator that gives commands the options of a function.

    Args:
        parameter: Keyword parameter of the command, in place of which the user sees the options.
        build: Makes its value of them; its parameters are annotated as those of a command.
    """

    def give(command: Command) -> Command:
        shared = inspect.signature(build, eval_str=True).parameters
        own = inspect.signature(command, eval_str=True).parameters

        @functools.wraps(command)
        def run(**given: Any) -> None:
            value = build(**{name: given.pop(name) for name in shared})
            command(**{parameter: value}, **given)

        seen = {name: one for name, one in {**own, **shared}.items() if name != parameter}
        # typer reads both; `functools.wraps` has pointed them at the command.
        run.__annotations__ = {name: one.annotation for name, one in seen.items()}
        vars(run)["__signature__"] = inspect.Signature(
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in seen.values()]
        )
        del vars(run)["__wrapped__"]
        return run

    return give
