"""One declaration per setting, as the default of a dataclass's field, and what is read from it.

Pure. Spark options, the flags of ``cassieq`` and of the repair job, the keys of a configuration
file, the environment variables, their errors and the pages docs/options.md and docs/cli.md follow
from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.kinds import Kind

_Value = TypeVar("_Value")
_Default = TypeVar("_Default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What users see of a setting.

    Attributes:
        option: The Spark option, in the case of letters that the docs show; None if Spark has
            none.
        flag: The flag, without the dashes in front, and the key in a configuration file.
        kind: Which values it takes.
        meaning: What it does, in plain text.
        without: What holds if it is left out and has no default.
        see: Page that says more, with an anchor if it needs one.
        secret: Whether its value is kept out of errors and reprs.
        unless: Another option, and the value with which this one, which is required otherwise,
            may be left out.
        only_for: What it has a meaning for, of the things that its class describes; empty: all.
        attribute: The field.
        default: The default of the field; `MISSING` if there is none.
    """

    option: str | None
    flag: str | None
    kind: Kind[Any]
    meaning: str
    without: str | None = None
    see: str | None = None
    secret: bool = False
    unless: tuple[str, str] | None = None
    only_for: tuple[str, ...] = ()
    attribute: str = ""
    default: Any = None

    @property
    def variable(self) -> str:
        """The environment variable that commands read."""
        return f"CASSIEQ_{self.flag}".replace("-", "_").upper()


def setting(  # noqa: PLR0913 (the parts of a declaration)
    option: str | None,
    kind: Kind[_Value],
    default: _Default,
    meaning: str,
    *,
    flag: str | None = None,
    without: str | None = None,
    see: str | None = None,
    secret: bool = False,
    only_for: tuple[str, ...] = (),
) -> _Value | _Default:
    """Declare a setting that may be left out; see `Setting`."""
    declared = Setting(
        option=option,
        flag=flag,
        kind=kind,
        meaning=meaning,
        without=without,
        see=see,
        secret=secret,
        only_for=only_for,
    )
    return field(default=default, repr=not secret, metadata={"setting": declared})


def required(
    option: str, kind: Kind[Any], meaning: str, *, unless: tuple[str, str] | None = None
) -> dict[str, Setting]:
    """The metadata of a field without a default; see `Setting`."""
    declared = Setting(option=option, flag=None, kind=kind, meaning=meaning, unless=unless)
    return {"setting": declared}


#: What `settings_of` has found, by class.
_FOUND: dict[type[Any], tuple[Setting, ...]] = {}


def settings_of(cls: type[Any]) -> tuple[Setting, ...]:
    """The settings of a class, in their order."""
    if cls not in _FOUND:
        declared = [(each, each.metadata["setting"]) for each in fields(cls) if each.metadata]
        _FOUND[cls] = tuple(
            replace(
                item,
                attribute=each.name,
                default=each.default,
                flag=item.flag or each.name.replace("_", "-"),
            )
            for each, item in declared
        )
    return _FOUND[cls]


def settings_by_option(*classes: type[Any]) -> dict[str, Setting]:
    """The settings of classes that are Spark options, by option in lower case."""
    found = (each for cls in classes for each in settings_of(cls))
    return {each.option.lower(): each for each in found if each.option}


def read_values(
    known: Mapping[str, Setting], given: Mapping[str, str], problems: list[str]
) -> dict[str, Any]:
    """Read what was given of the settings.

    Args:
        known: By option, as `settings_by_option` returns them.
        given: Texts by option in lower case.
        problems: What is wrong is added to it.

    Returns:
        Values by attribute.
    """
    values = {}
    for key, item in known.items():
        text = given.get(key)
        if text is None:
            if item.default is MISSING and not _may_be_left_out(item, given):
                problems.append(explain_missing(str(item.option), unless=item.unless))
            continue
        try:
            values[item.attribute] = item.kind.parse(text)
        except ValueError as error:
            shown = "what was given" if item.secret else repr(text)
            problems.append(f"option {item.option!r}" + explain(item.kind, shown, error))
    return values


def explain(kind: Kind[Any], shown: str, error: ValueError) -> str:
    """What is wrong with a value that a kind refused; goes behind the name of the setting."""
    if isinstance(error, OptionError):
        return f": {error}"
    return f" must be {kind.name}, not {shown}"


def parse_value(name: str, kind: Kind[_Value], text: str, *, secret: bool = False) -> _Value:
    """Read one value; the error does not show it if it is a secret.

    Raises:
        OptionError: Names the setting, and what was expected.
    """
    try:
        return kind.parse(text)
    except ValueError as error:
        shown = "what was given" if secret else repr(text)
        raise OptionError(name + explain(kind, shown, error)) from error


def explain_unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Name the nearest of the known names, or all of them if none is near.

    Args:
        what: What it should have been: ``option``.
        name: What was given.
        known: The names that there are.
    """
    names = list(known)
    advice = did_you_mean(name, names, otherwise=f"known: {', '.join(names)}")
    return f"unknown {what} {name!r}; {advice}"


def explain_missing(option: str, *, unless: tuple[str, str] | None = None) -> str:
    """How to give an option that has no default, or what to give to do without."""
    exception = f"; only .option({unless[0]!r}, {unless[1]!r}) does without" if unless else ""
    return f"option {option!r} is missing: give it with .option({option!r}, ...){exception}"


def check_both_or_neither(pair: Mapping[str, object]) -> None:
    """Raise `OptionError` if one of two settings is given and the other one, None, is not."""
    if len({value is None for value in pair.values()}) > 1:
        given, missing = sorted(pair, key=lambda key: pair[key] is None)
        raise OptionError(f"{given} needs {missing}: give both, or neither")


def _may_be_left_out(item: Setting, given: Mapping[str, str]) -> bool:
    if item.unless is None:
        return False
    other, value = item.unless
    return given.get(other.lower(), "").lower() == value
