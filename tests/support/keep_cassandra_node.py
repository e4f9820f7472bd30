"""Keep one node for all workers of a test run: started by the first, ended after the last.

Each process that uses the node holds a shared lock on ``users``. A lock ends with its process,
however that ends; so once this program gets the lock alone, nobody is left.
"""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path

from cassieq_spark.errors import CassieqError
from cassieq_spark.node import Cluster


def main(folder: Path) -> None:
    """Start a node, write where it is to ``folder/node.json``, and stay while it has users."""
    try:
        with Cluster() as cluster:
            _tell(folder, {"contact_points": cluster.contact_points, "port": cluster.port})
            with (folder / "users").open("w") as users:
                fcntl.flock(users, fcntl.LOCK_EX)
                (folder / "node.json").unlink()
    except CassieqError as error:
        _tell(folder, {"error": str(error)})


def _tell(folder: Path, state: dict[str, object]) -> None:
    fresh = folder / "node.json.new"
    fresh.write_text(json.dumps(state))
    fresh.replace(folder / "node.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
