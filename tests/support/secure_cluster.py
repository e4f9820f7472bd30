"""A node that asks for TLS, a client certificate, a name and a password, and checks rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cassieq_spark.node import Cluster, NodeTls
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.cassandra.session import connect
from tests.support.certificates import Certificates, make_certificates


@dataclass(frozen=True, slots=True)
class SecureCluster:
    """How to reach it, as the superuser of the start, with a keyspace and its tables."""

    superuser: ConnectionOptions
    certificates: Certificates

    def execute(self, *statements: str) -> None:
        """As the superuser."""
        cluster, session = connect(self.superuser)
        try:
            for statement in statements:
                session.execute(statement)
        finally:
            cluster.shutdown()

    def login(self, role: str, password: str) -> ConnectionOptions:
        """Make a role that may do nothing."""
        self.execute(f"CREATE ROLE \"{role}\" WITH LOGIN = true AND PASSWORD = '{password}'")
        return replace(self.superuser, username=role, password=password)


@contextmanager
def secure_cluster(folder: Path) -> Iterator[SecureCluster]:
    """Start one; its keys go into the folder."""
    certificates = make_certificates(folder)
    tls = NodeTls(identity=certificates.node, ca=certificates.ca, client_certificates=True)
    with Cluster(authentication=True, tls=tls) as cluster:
        superuser = ConnectionOptions(
            contact_points=tuple(cluster.contact_points),
            port=cluster.port,
            username="cassandra",
            password="cassandra",
            ssl_ca_file=str(certificates.ca),
            ssl_cert_file=str(certificates.client_certificate),
            ssl_key_file=str(certificates.client_key),
            keyspace="queues",
        )
        apply_schema(superuser, "1")
        yield SecureCluster(superuser, certificates)
