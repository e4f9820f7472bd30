"""Certificates and a password for a node on this machine, made by Java's ``keytool``.

They are for trials: the certificates name only this machine, and the key of their CA is deleted
once they are signed. With a data folder, certificates and password are kept beside the data, so
that clients can continue to trust the same CA after a restart.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cassieq_spark.errors import SetupError
from cassieq_spark.node.configure import NodeTls

#: The role that `cassieq node up --auth` makes.
ADMINISTRATOR = "admin"

_FOLDER = "security"
_DAYS = "3650"
_NAMES = "dns:localhost,ip:127.0.0.1,ip:127.0.0.2,ip:127.0.0.3"
_PASSWORD_BYTES = 18
_KEYTOOL_SECONDS = 60
_STORE_PASSWORD = "CASSIEQ_STORE_PASSWORD"  # noqa: S105 (the name of a variable)


@dataclass(frozen=True, slots=True)
class Security:
    """The files in one folder, which only its user can access.

    Attributes:
        folder: The folder.
    """

    folder: Path

    @classmethod
    def beside(cls, data_dir: Path) -> Security:
        """The files that belong to the data in a folder."""
        return cls(data_dir / _FOLDER)

    @property
    def ca(self) -> Path:
        """PEM file of the CA that has signed the node's certificate."""
        return self.folder / "ca.pem"

    @property
    def password_file(self) -> Path:
        """File with the password of the `ADMINISTRATOR`."""
        return self.folder / "password"

    def make_password(self) -> str:
        """The password of the administrator; makes one if there is none yet."""
        if not self.password_file.exists():
            self._write(self.password_file, secrets.token_urlsafe(_PASSWORD_BYTES) + "\n")
        return self.password_file.read_text().strip()

    def make_tls(self, java: Path) -> NodeTls:
        """The node's key and certificate; makes them, which takes some seconds, if there are none.

        Args:
            java: The path of ``java``; ``keytool`` is beside its real file.

        Raises:
            SetupError: ``keytool`` is missing or fails, or the folder cannot be written.
        """
        keys, password_file = self.folder / "node.p12", self.folder / "node.password"
        if not self.ca.exists():
            # The CA comes last: with it, the others are whole.
            for each in (keys, password_file):
                each.unlink(missing_ok=True)
            self._write(password_file, secrets.token_urlsafe(_PASSWORD_BYTES))
            keytool = _Keytool(java, keys, password_file.read_text())
            keytool("-genkeypair", "-alias", "ca", "-dname", "CN=cassieq node up", "-ext", "bc:c")
            keytool("-genkeypair", "-alias", "node", "-dname", "CN=localhost", "-signer", "ca",
                    "-ext", f"san={_NAMES}")  # fmt: skip
            certificate = keytool("-exportcert", "-rfc", "-alias", "ca")
            # Java would choose between two keys; and nobody can sign others with this CA.
            keytool("-delete", "-alias", "ca")
            keys.chmod(0o600)
            self._write(self.ca, certificate)
        return NodeTls(identity=keys, ca=self.ca, password=password_file.read_text())

    def _write(self, path: Path, text: str) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = path.with_name(path.name + ".new")
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as to:
                to.write(text)
            fresh.replace(path)
        except OSError as exc:
            raise SetupError(f"{path} cannot be written ({exc.strerror})") from exc


class _Keytool:
    """Runs ``keytool`` on one key store."""

    def __init__(self, java: Path, store: Path, password: str) -> None:
        self._program = java.resolve().parent / "keytool"
        self._store = ["-keystore", str(store), "-storetype", "PKCS12"]
        # In the environment: other users can see the arguments of a process.
        self._environment = os.environ | {_STORE_PASSWORD: password}

    def __call__(self, what: str, *arguments: str) -> str:
        command = [str(self._program), what, *arguments, *self._store]
        command += ["-storepass:env", _STORE_PASSWORD]
        if what == "-genkeypair":
            command += ["-keyalg", "EC", "-groupname", "secp256r1", "-validity", _DAYS]
        try:
            done = subprocess.run(  # noqa: S603 (our own command)
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=True,
                timeout=_KEYTOOL_SECONDS,
            )
        except OSError as exc:
            raise SetupError(
                f"{self._program} is needed to make certificates, and cannot be run: "
                f"{exc.strerror}"
            ) from exc
        except subprocess.CalledProcessError as exc:
            raise SetupError(f"{self._program} {what} failed: {exc.stdout.strip()}") from exc
        except subprocess.TimeoutExpired as exc:
            raise SetupError(
                f"{self._program} {what} took longer than {_KEYTOOL_SECONDS} s"
            ) from exc
        return done.stdout
