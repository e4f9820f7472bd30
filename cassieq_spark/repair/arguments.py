"""The arguments of the repair job, and what they may be."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from cassieq_spark.errors import OptionError
from cassieq_spark.repair.history import DEFAULT_KEPT
from cassieq_spark.repair.steps import Step
from cassieq_spark.repair.work import DEFAULT_WRITE_TIMEOUT
from cassieq_spark.settings.connection import (
    DEFAULT_CONTACT_POINTS,
    DEFAULT_KEYSPACE,
    DEFAULT_PORT,
    Consistency,
)
from cassieq_spark.settings.declaration import settings_of
from cassieq_spark.settings.file import CASSANDRA, GATEWAY, REPAIR, VARIABLE, read_settings
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.settings.kinds import Kind, duration
from cassieq_spark.settings.secret import REFERENCES

_CHECK_HOSTNAME = "ssl-check-hostname"
#: What a configuration may have: everything but what is for one run.
_CLUSTER = (
    "contact-points",
    "port",
    "local-dc",
    "username",
    "password",
    "ssl",
    "ssl-ca-file",
    "ssl-cert-file",
    "ssl-key-file",
    _CHECK_HOSTNAME,
    "secure-connect-bundle",
    "consistency",
    "keyspace",
)
OWN = (
    "steps",
    "write-timeout",
    "scan",
    "verify",
    "repair-report",
    "every",
    "keep-history",
    "json",
)

_WRITE_TIMEOUT: Kind[timedelta] = duration(timedelta(days=30), zero=True)
_EVERY: Kind[timedelta] = duration(timedelta(days=30))
_KEPT: Kind[timedelta] = duration(timedelta(days=3650))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; wrong ones end the process with exit status 2.

    Those of the configuration come first, so that those of ``argv`` win.
    """
    understood = parser()
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", type=Path, default=os.environ.get(VARIABLE))
    config = first.parse_known_args(argv)[0].config
    try:
        configured = [] if config is None else _configured(Path(config))
    except OptionError as error:
        understood.error(str(error))
    arguments = understood.parse_args([*configured, *argv])
    audits = {"--verify data": arguments.verify == "data"}
    audits["--repair-report"] = arguments.repair_report
    for option, is_given in audits.items():
        if is_given and Step.AUDIT not in arguments.steps:
            understood.error(f"{option} is for the step audit, which --steps leaves out")
    return arguments


def parser() -> argparse.ArgumentParser:
    """What the job understands."""
    arguments = argparse.ArgumentParser(
        prog="repair.py",
        description="Delete what is settled or was never published, and audit what is left.",
        epilog="Exit status: 0 done, 1 messages lost or stored wrongly, 2 wrong usage, 3 failed "
        "or stopped half way, 4 another repair run is at work.",
    )
    arguments.add_argument(
        "--config",
        metavar="FILE",
        help="settings, as in conf/cassieq.toml; arguments go before them; the file that "
        f"{VARIABLE} names",
    )
    cluster = arguments.add_argument_group("the cluster")
    cluster.add_argument(
        "--contact-points",
        default=",".join(DEFAULT_CONTACT_POINTS),
        metavar="HOST[:PORT],...",
        help="%(default)s",
    )
    cluster.add_argument("--port", type=int, default=DEFAULT_PORT, help="%(default)s")
    cluster.add_argument("--local-dc", metavar="NAME", help="that of the contact points")
    cluster.add_argument("--username", metavar="NAME")
    cluster.add_argument("--password", metavar="REFERENCE", help=REFERENCES)
    cluster.add_argument("--ssl", action="store_true", help="encrypt; so does any of the files")
    cluster.add_argument("--ssl-ca-file", metavar="PEM", help="who signs the nodes' certificates")
    cluster.add_argument("--ssl-cert-file", metavar="PEM", help="the job's own certificate")
    cluster.add_argument("--ssl-key-file", metavar="PEM", help="in the certificate file")
    cluster.add_argument(
        "--no-ssl-check-hostname",
        dest="ssl_check_hostname",
        action="store_false",
        help="whichever address their certificates name",
    )
    cluster.add_argument("--secure-connect-bundle", metavar="ZIP", help="of a hosted cluster")
    cluster.add_argument(
        "--consistency",
        default=Consistency.LOCAL_QUORUM.value,
        metavar="LEVEL",
        help=f"{', '.join(Consistency)}; %(default)s",
    )
    cluster.add_argument("--keyspace", default=DEFAULT_KEYSPACE, help="%(default)s")
    arguments.add_argument(
        "--queue", action="append", default=[], metavar="NAME", help="may be repeated; all queues"
    )
    arguments.add_argument(
        "--steps", type=_steps, default=tuple(Step), metavar="STEP,...", help=", ".join(Step)
    )
    arguments.add_argument("--dry-run", action="store_true", help="print what would be done")
    arguments.add_argument(
        "--write-timeout",
        type=_duration,
        default=DEFAULT_WRITE_TIMEOUT,
        metavar="DURATION",
        help=f"the longest that a write may take; {_WRITE_TIMEOUT.show(DEFAULT_WRITE_TIMEOUT)}",
    )
    arguments.add_argument(
        "--scan",
        choices=("connector", "driver"),
        default="connector",
        help="who reads the table of chunks: Spark with its connector, or this process",
    )
    arguments.add_argument(
        "--verify",
        choices=("keys", "data"),
        default="keys",
        help="what the audit looks at: the keys of the chunks, or all data as well, which pass "
        "through this process; %(default)s",
    )
    arguments.add_argument(
        "--repair-report",
        action="store_true",
        help="say of each finding what happened, who is owed the messages, what can be done",
    )
    arguments.add_argument(
        "--every",
        type=_every,
        metavar="DURATION",
        help="again and again, so long after one another; SIGTERM or Ctrl-C ends it",
    )
    arguments.add_argument(
        "--keep-history",
        type=_whole_seconds,
        default=DEFAULT_KEPT,
        metavar="DURATION",
        help=f"how long a run is remembered; {_KEPT.show(DEFAULT_KEPT)}",
    )
    arguments.add_argument("--json", metavar="FILE", help="write the report there; - for stdout")
    return arguments


def _configured(path: Path) -> list[str]:
    """The settings of a file, as arguments."""
    limits = [str(item.flag) for item in settings_of(Limits)]
    settings = read_settings(path, {CASSANDRA: _CLUSTER, GATEWAY: limits, REPAIR: OWN})
    found: list[str] = []
    for name, value in (*settings[CASSANDRA].items(), *settings[REPAIR].items()):
        if name == _CHECK_HOSTNAME:
            found += [] if value else [f"--no-{name}"]
        elif isinstance(value, bool):
            found += [f"--{name}"] if value else []
        else:
            found.append(f"--{name}={value}")
    return found


def _steps(text: str) -> tuple[Step, ...]:
    try:
        return tuple(Step(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; the steps are {', '.join(Step)}") from error


def _duration(text: str) -> timedelta:
    return _parsed(_WRITE_TIMEOUT, text)


def _every(text: str) -> timedelta:
    return _parsed(_EVERY, text)


def _whole_seconds(text: str) -> timedelta:
    kept = _parsed(_KEPT, text)
    if kept % timedelta(seconds=1):
        raise argparse.ArgumentTypeError(f"must be whole seconds, not {text!r}")
    return kept


def _parsed(kind: Kind[timedelta], text: str) -> timedelta:
    try:
        return kind.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be {kind.name}, not {text!r}") from error
