"""What all tests share: services, Hypothesis profiles, markers from folders."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import Phase, settings

from tests.support import spark_classes
from tests.support.cassandra_node import cassandra_node
from tests.support.cassandra_store import cassandra_store, connection
from tests.support.minutes import BUDGET, Minutes
from tests.support.order import Order

__all__ = ["cassandra_node", "cassandra_store", "connection"]

pytest.register_assert_rewrite("cassieq_spark.testing.conformance")

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=2000, deadline=None)
# Until it fails: `make mutants` sets the time, and has no use for a smaller example.
settings.register_profile(
    "mutants",
    max_examples=1_000_000,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)

_MARKS = {
    "integration/cassandra": "cassandra",
    "integration/node": "cassandra",
    "integration/spark": "spark",
}


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Order())
    if not hasattr(config, "workerinput"):
        is_nightly = settings.get_current_profile_name() == "nightly"
        config.pluginmanager.register(Minutes(None if is_nightly else BUDGET))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in _marks_of(item.path):
            item.add_marker(mark)


@cache
def _marks_of(file: Path) -> Sequence[str]:
    folders = {Path(__file__).parent / folder: mark for folder, mark in _MARKS.items()}
    return [mark for folder, mark in folders.items() if file.is_relative_to(folder)]


@pytest.fixture(autouse=True, scope="session")
def _programs_can_be_interrupted() -> None:
    """Also where a shell has started the tests in the background, which takes Ctrl-C away."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


#: Java compiles once, which saves a node half of what it takes to start.
_QUICK_JAVA = "-XX:TieredStopAtLevel=1"


@pytest.fixture(autouse=True, scope="session")
def _quick_java_with_the_same_python() -> Iterator[None]:
    """Also in all programs that tests start."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        environment.setenv("SPARK_SUBMIT_OPTS", spark_classes.java_options())
        environment.setenv("JVM_EXTRA_OPTS", _QUICK_JAVA)
        yield


@pytest.fixture(autouse=True, scope="session")
def _commands_are_made_once() -> Iterator[None]:
    """Typer makes all commands anew to run one of them, which takes a tenth of a second."""
    with pytest.MonkeyPatch.context() as patches:
        made = cache(typer.main.get_command)
        patches.setattr(typer.main, "get_command", made)
        patches.setattr(typer.testing, "_get_command", made)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_node_in_the_background(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands would use the one that a developer has started."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
