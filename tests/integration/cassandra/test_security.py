from __future__ import annotations

import json
import socket
import ssl
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from uuid import uuid1, uuid4

import pytest
from typer.testing import CliRunner

from cassieq_spark import Client
from cassieq_spark.cli import app
from cassieq_spark.cli.repair import WHOLE, main
from cassieq_spark.errors import ConnectError, SetupError, StoreError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import BucketSlice, Chunk, PendingBlock, QueueDefinition, QueueId
from cassieq_spark.queues import create_queue, read_queue
from cassieq_spark.repair.runs import read_history
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.grants import User, grant_statements
from cassieq_spark.store.protocol import (
    Insert,
    Store,
    partition_of_group,
    partition_of_ledger,
    partition_of_queue,
)
from cassieq_spark.store.tables import Table
from tests.support.command_line import cassieq
from tests.support.secure_cluster import SecureCluster, secure_cluster
from tests.support.snapshots import read_snapshot

PASSWORDS = {user: f"{user} hunter2 ☂" for user in User}
WRITERS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("keys")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def logins(cluster: SecureCluster) -> dict[User, ConnectionOptions]:
    """A role for each sort of user, granted what the command prints, and nothing else."""
    found = {}
    for user in User:
        found[user] = cluster.login(f"The {user}", PASSWORDS[user])
        printed = CliRunner().invoke(
            app, ["schema", "grants", user, f"The {user}", "--keyspace", "queues"]
        )
        cluster.execute(*printed.output.split(";\n")[:-1])
    return found


@pytest.fixture(scope="module")
def root(cluster: SecureCluster) -> Iterator[Store]:
    store = open_store(cluster.superuser)
    yield store
    store.close()


@pytest.fixture
def queue(root: Store) -> QueueDefinition:
    name = f"q-{uuid4().hex[:12]}"
    return create_queue(root, name, max_deliveries=5, dead_letter_queue=f"{name}.dead")


@contextmanager
def store_of(options: ConnectionOptions) -> Iterator[Store]:
    store = open_store(options)
    try:
        yield store
    finally:
        store.close()


def produce(store: Store, queue: QueueDefinition, count: int = 10) -> None:
    block = uuid1()
    store.write_chunks(queue.queue_id, block, [Chunk(0, 0, count, b"data")])
    publish(Ledger(store, queue.queue_id), [PendingBlock(block, count)])


def consume(store: Store, queue: QueueDefinition) -> int:
    """Lease, read and ack all there is, and tell how much that was; one message dies."""
    ensure_group(ConsumerGroup(Ledger(store, queue.queue_id), "g"), starting="earliest")
    group = ConsumerGroup(Ledger(store, queue.queue_id), "g")
    request = LeaseRequest(
        held=None,
        token=uuid4(),
        lease=timedelta(minutes=5),
        max_messages=None,
        stop=Ledger(store, queue.queue_id).read_head().next,
    )
    lease = group.lease(request)
    for block in Ledger(store, queue.queue_id).read_blocks():
        piece = BucketSlice(block.block, 0, 0, len(block.monotons))
        assert [chunk.data for _, chunk in store.read_chunks(queue.queue_id, [piece])] == [b"data"]
    # A dead letter is published by the reader that meets it.
    assert queue.dead_letter_queue
    produce(store, read_queue(store, queue.dead_letter_queue), 1)
    group.lease(replace(request, held=request.token, token=uuid4()))
    return sum(each.monotons.count for each in lease.leased)


# Who connects, and to which server


def refusal(options: ConnectionOptions, kind: type[Exception] = ConnectError) -> str:
    with pytest.raises(kind) as refused:
        open_store(options)
    message = str(refused.value)
    assert "PermissionError" not in message
    return message


def test_a_node_that_speaks_tls_only_refuses_who_does_not(cluster: SecureCluster):
    in_the_clear = replace(
        cluster.superuser, ssl_ca_file=None, ssl_cert_file=None, ssl_key_file=None
    )

    assert "if it speaks TLS only, switch that on" in refusal(in_the_clear)


def test_a_node_with_a_certificate_of_another_ca_is_refused(cluster: SecureCluster):
    other = str(cluster.certificates.other_ca)

    assert f"signed by none of {other}" in refusal(replace(cluster.superuser, ssl_ca_file=other))
    by_the_machine = refusal(replace(cluster.superuser, ssl=True, ssl_ca_file=None))
    assert "signed by none of the CAs that this machine trusts" in by_the_machine


def test_a_node_that_trusts_no_such_client_says_so(cluster: SecureCluster):
    nobody = replace(cluster.superuser, ssl_cert_file=None, ssl_key_file=None)
    stranger = replace(nobody, ssl_cert_file=str(cluster.certificates.stranger))

    for options in (nobody, stranger):
        assert "client" in refusal(options)


def test_a_wrong_password_is_refused_without_showing_it(
    cluster: SecureCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    (tmp_path / "password").write_text("hunter2\n")
    monkeypatch.setenv("OF_A_TEST", "hunter2")

    with caplog.at_level("DEBUG"), caplog.at_level("DEBUG", "cassandra"):
        for password in ("hunter2", "env:OF_A_TEST", f"file:{tmp_path / 'password'}"):
            message = refusal(replace(cluster.superuser, password=password))
            assert "the cluster refuses user 'cassandra'" in message
            assert "hunter2" not in message

    assert "cassandra" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_wrong_password_at_the_command_line_is_one_line(
    cluster: SecureCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OF_A_TEST", "hunter2")
    options, (host, port) = cluster.superuser, cluster.superuser.endpoints[0]

    ended = cassieq(
        *("queue", "list", "--contact-points", f"{host}:{port}", "--port", str(port)),
        *("--keyspace", options.keyspace, "--ssl-ca-file", str(options.ssl_ca_file)),
        *("--ssl-cert-file", str(options.ssl_cert_file)),
        *("--ssl-key-file", str(options.ssl_key_file)),
        *("--username", "cassandra", "--password", "env:OF_A_TEST"),
    )

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("cassieq: the cluster refuses user 'cassandra'")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("password", ["env:NOT_SET_ANYWHERE", "file:nowhere"])
def test_a_secret_that_is_not_here_is_named(cluster: SecureCluster, password: str):
    message = refusal(replace(cluster.superuser, password=password), SetupError)

    assert password.partition(":")[2] in message


def test_a_key_of_another_certificate_and_one_with_a_passphrase_are_refused(
    cluster: SecureCluster, tmp_path: Path
):
    own = cluster.certificates
    other = replace(cluster.superuser, ssl_key_file=str(own.node))
    locked = tmp_path / "locked.pem"
    locked.write_text(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
        "DEK-Info: AES-128-CBC,000102030405060708090A0B0C0D0E0F\n\nAAAA\n"
        "-----END RSA PRIVATE KEY-----\n"
    )

    assert "the key is not that of the certificate" in refusal(other, SetupError)
    locked_key = replace(cluster.superuser, ssl_key_file=str(locked))
    assert f"the private key in {locked} has a passphrase" in refusal(locked_key, SetupError)


def test_a_certificate_that_names_another_address_is_refused_unless_told_otherwise(
    cluster: SecureCluster,
):
    # The client's certificate names no address at all.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        cluster.certificates.client_certificate, cluster.certificates.client_key
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=shake_hands, args=(server, context), daemon=True).start()
        options = replace(cluster.superuser, port=server.getsockname()[1])

        assert "its certificate is of another address" in refusal(options)
        unchecked = refusal(replace(options, ssl_check_hostname=False))
        assert "another address" not in unchecked


def shake_hands(server: socket.socket, context: ssl.SSLContext) -> None:
    """Again and again, saying nothing afterwards."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        try:
            with context.wrap_socket(connection, server_side=True):
                pass
        except OSError:
            connection.close()


def test_a_node_that_does_not_speak_tls_is_told_from_one_that_does(
    connection: ConnectionOptions,
):
    assert "does not speak TLS on this port" in refusal(replace(connection, ssl=True))


def test_large_chunks_of_many_threads_go_both_ways_by_tls(cluster: SecureCluster):
    queue_id, blocks = QueueId(f"{uuid4()}@1"), [uuid1() for _ in range(WRITERS)]
    chunks = [Chunk(0, at, at + 1, bytes([at]) * (1 << 20)) for at in range(8)]

    with store_of(cluster.superuser) as store, ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(lambda block: store.write_chunks(queue_id, block, chunks), blocks))

        for block in blocks:
            found = store.read_chunks(queue_id, [BucketSlice(block, 0, 0, 8)])
            assert [chunk for _, chunk in found] == chunks


# A driver older than Python's present names of TLS versions.
@pytest.mark.filterwarnings("ignore:ssl.PROTOCOL_TLS is deprecated:DeprecationWarning")
def test_a_secure_connect_bundle_leads_to_the_cluster(cluster: SecureCluster, tmp_path: Path):
    """The service that a bundle names is ours; what the driver does with both is its own."""
    host, port = cluster.superuser.endpoints[0]
    driver, session = connect(cluster.superuser)
    host_id = str(session.execute("SELECT host_id FROM system.local").one()[0])
    driver.shutdown()
    told = {
        "contact_info": {
            "local_dc": "datacenter1",
            "sni_proxy_address": f"{host}:{port}",
            "contact_points": [host_id],
        }
    }
    with metadata_service(cluster, told) as service:
        bundle = tmp_path / "secure-connect.zip"
        own = cluster.certificates
        with zipfile.ZipFile(bundle, "w") as zipped:
            zipped.writestr("config.json", json.dumps({"host": "127.0.0.1", "port": service}))
            zipped.write(own.ca, "ca.crt")
            zipped.write(own.client_certificate, "cert")
            zipped.write(own.client_key, "key")
        options = ConnectionOptions(
            secure_connect_bundle=str(bundle),
            username="cassandra",
            password="cassandra",
            keyspace="queues",
        )

        with store_of(options) as store:
            name = f"q-{uuid4().hex[:12]}"
            assert create_queue(store, name) == read_queue(store, name)

    assert f"no node answers at {bundle}" in refusal(replace(options, keyspace="other"))


@contextmanager
def metadata_service(cluster: SecureCluster, told: object) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(told).encode())

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cluster.certificates.node)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


# Who may do what


def test_each_user_does_its_part_with_exactly_its_grants(
    logins: dict[User, ConnectionOptions], cluster: SecureCluster, tmp_path: Path
):
    """A queue's life: made by the admin, filled, emptied, repaired, each by its own role."""
    name = f"q-{uuid4().hex[:12]}"
    password = tmp_path / "password"
    password.write_text(PASSWORDS[User.ADMIN] + "\n", encoding="utf-8")
    created = CliRunner().invoke(
        app, ["queue", "create", name, *arguments_of(logins[User.ADMIN], f"file:{password}")]
    )
    assert created.exit_code == 0, created.output

    with store_of(logins[User.PRODUCER]) as store:
        queue = read_queue(store, name)
        produce(store, queue, 10)
    with store_of(logins[User.CONSUMER]) as store:
        assert consume(store, read_queue(store, name)) == 10
    password.write_text(PASSWORDS[User.REPAIR], encoding="utf-8")
    reach = arguments_of(logins[User.REPAIR], f"file:{password}")
    repaired = main([*reach, "--scan", "driver", "--write-timeout", "0s"])

    assert repaired == WHOLE
    with store_of(logins[User.ADMIN]) as store:
        assert Ledger(store, queue.queue_id).read_head().finalised == 10
    with store_of(logins[User.GATEWAY]) as store, Client.from_store(store) as client:
        account = Accounts(store, Secrets(("the-secret-of-these-gateways-here",))).create(name)
        client.create_queue(f"{name}:orders", max_deliveries=1)
        client.put(f"{name}:orders", "a")
        (message,) = client.receive(f"{name}:orders", "default")
        client.reject(message, reason="bad")
        assert client.receive(f"{name}:orders", "default") == []
        assert client.redrive(client.dead_letters(f"{name}:orders")).redriven
        client.purge_queue(f"{name}:orders", force=True)
        client.delete_queue(f"{name}:orders", force=True)
        assert account.is_active
    with store_of(logins[User.VIEWER]) as store:
        found = {each.name: each for each in read_snapshot(store).queues}
        assert [each.depth for each in found[name].stats.groups] == [0]
        assert read_history(store, 1)
        scan_chunks(store, queue)
    for user in set(User) - {User.GATEWAY, User.ADMIN}:
        with store_of(logins[user]) as store, pytest.raises(StoreError, match="permission"):
            list(store.scan(Table.ACCOUNT))


def arguments_of(options: ConnectionOptions, password: str) -> list[str]:
    given = {
        "--contact-points": ",".join(options.contact_points),
        "--port": str(options.port),
        "--username": options.username,
        "--password": password,
        "--ssl-ca-file": options.ssl_ca_file,
        "--ssl-cert-file": options.ssl_cert_file,
        "--ssl-key-file": options.ssl_key_file,
        "--keyspace": options.keyspace,
    }
    return [word for pair in given.items() for word in pair]


@pytest.mark.parametrize("user", [User.PRODUCER, User.CONSUMER])
def test_no_grant_is_one_too_many(
    cluster: SecureCluster, queue: QueueDefinition, root: Store, user: User
):
    produce(root, queue)
    do_part = {User.PRODUCER: produce, User.CONSUMER: consume}[user]
    granted = grant_statements(user, "nearly", "queues")

    for left_out in range(len(granted)):
        role = f"nearly-{uuid4().hex[:8]}"
        login = cluster.login(role, "hunter2")
        statements = grant_statements(user, role, "queues")
        cluster.execute(*statements[:left_out], *statements[left_out + 1 :])
        with (
            store_of(login) as store,
            pytest.raises(StoreError, match=f"has no {granted[left_out].split()[1]} permission"),
        ):
            do_part(store, read_queue(store, queue.name))


def test_the_admin_makes_a_table_that_is_missing(
    logins: dict[User, ConnectionOptions], cluster: SecureCluster
):
    cluster.execute(f"DROP TABLE queues.{Table.GROUP_STATE}")
    for user in (User.PRODUCER, User.CONSUMER, User.REPAIR, User.VIEWER):
        with pytest.raises(StoreError, match="Unauthorized"):
            apply_schema(logins[user], "1")

    apply_schema(logins[User.ADMIN], "1")

    # Its grants went with it.
    cluster.execute(
        *(
            statement
            for user in User
            for statement in grant_statements(user, f"The {user}", "queues")
        )
    )


def read_chunks(store: Store, queue: QueueDefinition) -> object:
    return list(store.read_chunks(queue.queue_id, [BucketSlice(uuid1(), 0, 0, 1)]))


def scan_chunks(store: Store, queue: QueueDefinition) -> object:
    return list(store.scan(Table.CHUNK))


def see_who_has_what(store: Store, queue: QueueDefinition) -> object:
    return store.read_rows(partition_of_group(queue.queue_id, "g"))


def take_a_lease(store: Store, queue: QueueDefinition) -> object:
    slot = Insert(("slot", 0, 0), {"deliveries": 1}, if_absent=True)
    return store.cas(partition_of_group(queue.queue_id, "g"), [slot])


def redefine_a_queue(store: Store, queue: QueueDefinition) -> object:
    row = Insert((), {"max_deliveries": 0}, if_absent=True)
    return store.cas(partition_of_queue(queue.name), [row])


@pytest.mark.parametrize(
    ("user", "part"),
    [
        *((User.PRODUCER, part) for part in (read_chunks, scan_chunks)),
        *((User.PRODUCER, part) for part in (see_who_has_what, take_a_lease)),
        *((user, redefine_a_queue) for user in (User.PRODUCER, User.CONSUMER, User.VIEWER)),
        (User.VIEWER, take_a_lease),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_is_not_a_users_part_is_refused_with_what_to_do(
    logins: dict[User, ConnectionOptions],
    queue: QueueDefinition,
    user: User,
    part: Callable[[Store, QueueDefinition], object],
):
    with (
        store_of(logins[user]) as store,
        pytest.raises(StoreError, match=r"has no (SELECT|MODIFY) permission.*schema grants"),
    ):
        part(store, queue)


def test_a_role_without_grants_reaches_nothing(cluster: SecureCluster, queue: QueueDefinition):
    nobody = cluster.login("nobody", "nobody")

    with store_of(nobody) as store:
        for table in Table:
            with pytest.raises(StoreError, match="has no SELECT permission"):
                list(store.scan(table))
        with pytest.raises(StoreError, match="permission"):
            store.cas(
                partition_of_ledger(queue.queue_id), [Insert(("head", 0, ""), {}, if_absent=True)]
            )


def test_grants_are_of_one_keyspace(cluster: SecureCluster, logins: dict[User, ConnectionOptions]):
    apply_schema(replace(cluster.superuser, keyspace="private"), "1")

    for user in User:
        with (
            store_of(replace(logins[user], keyspace="private")) as store,
            pytest.raises(StoreError, match="has no SELECT permission"),
        ):
            list(store.scan(Table.QUEUE))
