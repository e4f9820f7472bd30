"""Rates, sizes, lengths of time and shares as people write them, and as a plan shows them.

5m, 100/m and 64k mean here what they mean in other commands: 64k is 64 KiB. But kB, MB, GB and TB
are powers of 1000, as for disks.

>>> RATE.parse("12M/day"), SIZE.parse("1KiB"), NETWORK.parse("10Gbit/s"), SHARE.parse("40%")
(138.88888888888889, 1024.0, 1250000000.0, 0.4)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from cassieq_spark.settings.kinds import Kind

_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_RATE = re.compile(rf"{_NUMBER}([kM]?)(?:/([a-z]+))?")
_SIZE = re.compile(rf"{_NUMBER} ?([A-Za-z]+)")
_NETWORK = re.compile(rf"{_NUMBER} ?([A-Za-z]+)/s")
_PERIOD = re.compile(rf"{_NUMBER}([a-z]+)")
_SHARE = re.compile(rf"{_NUMBER}%")
_FACTOR = re.compile(_NUMBER)

_MULTIPLES = {"": 1.0, "k": 1e3, "M": 1e6}
_PER = {"day": 86_400.0, "d": 86_400.0, "hour": 3600.0, "h": 3600.0, "min": 60.0, "m": 60.0}
_PER |= {"s": 1.0}
_BYTES = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0}
_BINARY = {"TiB": 2.0**40, "GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10}
_SHORT = {"g": 2.0**30, "m": 2.0**20, "k": 2.0**10}
_SHORT |= {unit.upper(): length for unit, length in _SHORT.items()}
_BITS = {"Gbit": 1e9 / 8, "Mbit": 1e6 / 8}
_PERIODS = {"d": 86_400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_LONGEST = timedelta(days=3650)
_LARGEST = 1e18
_FIGURES = 3


def _parse_rate(text: str) -> float:
    number, multiple, per = _matched(_RATE, text)
    return _positive(float(number) * _MULTIPLES[multiple] / _of(_PER, per or "s"))


def _parse_size(text: str) -> float:
    number, unit = _matched(_SIZE, text)
    return _positive(float(number) * _of(_BYTES | _BINARY | _SHORT, unit))


def _parse_network(text: str) -> float:
    number, unit = _matched(_NETWORK, text)
    return _positive(float(number) * _of(_BYTES | _BITS, unit))


def _parse_period(text: str) -> timedelta:
    number, unit = _matched(_PERIOD, text.lower())
    seconds = float(number) * _of(_PERIODS, unit)
    if not 0 < seconds <= _LONGEST.total_seconds():
        raise ValueError(text)
    return timedelta(seconds=seconds)


def _parse_share(text: str) -> float:
    (number,) = _matched(_SHARE, text)
    if float(number) > 90:  # noqa: PLR2004 (the name of the kind says it)
        raise ValueError(text)
    return float(number) / 100


def _parse_factor(text: str) -> float:
    (number,) = _matched(_FACTOR, text)
    if not 1 <= float(number) <= 1000:  # noqa: PLR2004 (the name of the kind says it)
        raise ValueError(text)
    return float(number)


def _matched(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return match.groups(default="")


def _of(units: Mapping[str, float], unit: str) -> float:
    if unit not in units:
        raise ValueError(unit)
    return units[unit]


def _positive(value: float) -> float:
    if not 0 < value <= _LARGEST:
        raise ValueError(value)
    return value


def shown(value: float) -> str:
    """A number with three figures, and commas.

    >>> shown(1234567), shown(12.345), shown(0.04567), shown(0), shown(7)
    ('1,230,000', '12.3', '0.0457', '0', '7')
    """
    if not value:
        return "0"
    digits = _FIGURES - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:,.0f}" if digits <= 0 else f"{rounded:,.{digits}f}".rstrip("0").rstrip(".")


def _in(units: Mapping[str, float], value: float, after: str = "") -> str:
    """A number in the largest unit that it fills."""
    unit, length = next(
        ((unit, length) for unit, length in units.items() if value >= length),
        list(units.items())[-1],
    )
    return f"{shown(value / length)} {unit}{after}"


#: Formats bytes, or bytes per second, in powers of 1000.
shown_size: Callable[[float], str] = partial(_in, _BYTES)
shown_flow: Callable[[float], str] = partial(_in, _BYTES, after="/s")


def shown_period(period: timedelta) -> str:
    """A length of time in one unit.

    >>> shown_period(timedelta(minutes=90))
    '1.5 h'
    """
    return _in(_PERIODS, period.total_seconds())


def _exact(units: Mapping[str, float], value: float) -> str:
    """A number as it can be read again, in the largest unit that needs no fraction."""
    whole = ((unit, length) for unit, length in units.items() if not value % length)
    unit, length = next(whole, list(units.items())[-1])
    return f"{value / length:g}{unit}"


#: Messages per second.
RATE: Kind[float] = Kind(
    "a rate such as 200k/s, 5000/m or 12M/day",
    _parse_rate,
    lambda value: f"{value:g}/s",
    "RATE",
)
#: Bytes.
SIZE: Kind[float] = Kind(
    "a size such as 300B, 1kB (1000 bytes), 1KiB or 1k (1024), or 4TB",
    _parse_size,
    partial(_exact, _BYTES),
    "SIZE",
)
#: Bytes per second.
NETWORK: Kind[float] = Kind(
    "a rate of data such as 10Gbit/s or 1GB/s",
    _parse_network,
    lambda value: _exact(_BITS, value) + "/s",
    "RATE",
)
PERIOD: Kind[timedelta] = Kind(
    "a length of time such as 10s, 5m, 36h or 7d, at most ten years",
    _parse_period,
    lambda value: _exact(_PERIODS, value.total_seconds()),
    "DURATION",
)
SHARE: Kind[float] = Kind(
    "a share such as 40%, at most 90%", _parse_share, lambda value: f"{value * 100:g}%", "SHARE"
)
FACTOR: Kind[float] = Kind(
    "a number from 1 to 1000, such as 2 or 1.5", _parse_factor, lambda value: f"{value:g}"
)
