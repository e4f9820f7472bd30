from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import Connection, ConnectionOptions, connection_options
from tests.support.programs import output_of


def test_importing_the_package_imports_neither_spark_nor_the_driver_nor_arrow():
    heavy = "[name for name in ('cassandra', 'pyarrow', 'pyspark') if name in sys.modules]"

    assert output_of(f"import sys, cassieq_spark; print({heavy})") == "[]\n"
    imported = output_of(
        f"import sys; from cassieq_spark import Client, AsyncClient; print({heavy})"
    )
    assert imported == "['pyarrow']\n"


def test_importing_the_package_imports_next_to_nothing_of_it():
    ours = "sorted(name for name in sys.modules if name.startswith('cassieq_spark'))"

    assert output_of(f"import sys, cassieq_spark; print({ours})") == (
        "['cassieq_spark', 'cassieq_spark.arguments', 'cassieq_spark.errors']\n"
    )


def test_a_child_goes_on_while_the_parent_waits_and_puts_nothing_twice():
    program = """
        import os, sys, threading
        from datetime import timedelta
        from cassieq_spark import Client
        from cassieq_spark.store.memory import MemoryStore

        client = Client.from_store(MemoryStore())
        client.create_queue("q")
        client.receive("q", "g")
        waiting = threading.Thread(
            target=client.receive, args=("q", "g"), kwargs={"wait": timedelta(seconds=60)}
        )
        waiting.start()
        producer = client.producer("q", linger=timedelta(hours=1))
        producer.put("of the parent")

        def child():
            with client, producer:
                producer.put("of the child")
                producer.flush()
                print("child", [each.value for each in client.peek("q")], flush=True)
                client.ack(*client.receive("q", "g"))

        pid = os.fork()
        if pid == 0:
            try:
                child()
            finally:
                sys.stdout.flush()
                os._exit(0)
        os.waitpid(pid, 0)
        producer.close()
        waiting.join()
        client.close()
        print("parent", [each.value for each in Client.from_store(client._store).peek("q")])
    """

    assert output_of(program) == "child [b'of the child']\nparent [b'of the parent']\n"


def test_a_client_is_given_what_connection_options_have():
    assert set(Connection.__annotations__) == {field.name for field in fields(ConnectionOptions)}
    assert connection_options({}) == ConnectionOptions()


@pytest.mark.parametrize("points", ["a, b:1", ["a", "b:1"], ("a", "b:1")])
def test_contact_points_may_be_one_text(points: object):
    options = connection_options({"contact_points": points, "patience": timedelta(seconds=1)})

    assert options.contact_points == ("a", "b:1")
    assert options.patience == timedelta(seconds=1)


def test_bad_connections_are_refused_before_anything_is_tried():
    with pytest.raises(OptionError, match="keyspace"):
        Client(keyspace="No Such")
    with pytest.raises(TypeError, match="keyspce"):
        Client(keyspce="x")
