"""``cassieq spark``: makes Spark's Python start sooner."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cassieq_spark.cli.options import AsJson, command, make_app
from cassieq_spark.cli.output import tell
from cassieq_spark.errors import OptionError, SetupError
from cassieq_spark.spark.bytecode import Compiled, archives_of, compile_archive, compile_imports

app = make_app("Prepare an installation of Spark.")


@command(app, "compile")
def compile_(
    context: typer.Context,
    archives: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Only these zip files: packages that --py-files sends to executors.",
            metavar="ARCHIVE",
            show_default=False,
        ),
    ] = None,
    *,
    spark_home: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the installation; also SPARK_HOME.",
            metavar="FOLDER",
            envvar="SPARK_HOME",
            file_okay=False,
            exists=True,
            show_envvar=False,
            show_default="that of the package pyspark",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile Spark's Python modules once, so that its Python processes start sooner.

    Run the command where Spark is installed, with the Python of the workers (PYSPARK_PYTHON),
    before Spark starts. Spark's sources stay as they are, for other versions of Python; only
    Spark's own tests can no longer be imported from there.

    Modules of this package, of its dependencies and of Python itself are compiled, too, if they
    lack bytecode: images of containers often do not store it (PYTHONDONTWRITEBYTECODE, or uv).

    An ARCHIVE gets bytecode for this Python, which should be that of the executors. It keeps its
    sources, for any other.

    Examples:
        cassieq spark compile
        cassieq spark compile cassieq_spark.zip
    """
    source = context.get_parameter_source("spark_home")
    if archives and source is not None and source.name == "COMMANDLINE":
        raise OptionError(
            f"--spark-home {spark_home} does not go with archives: compile these, and an "
            "installation of Spark by another command"
        )
    if archives:
        names = [str(each) for each in archives if compile_archive(each, keep_tests=True)]
        others = Compiled()
    else:
        installed = archives_of(spark_home or _pyspark())
        names = [str(each) for each in installed if compile_archive(each)]
        others = compile_imports(installed)
    parts = [*names, *([f"{len(others.modules)} modules"] if others.modules else [])]
    done = f"Compiled {' and '.join(parts)}." if parts else "All modules are compiled already."
    if others.refused:
        done += (
            f" The bytecode of {len(others.refused)} modules cannot be stored in "
            f"{os.path.commonpath(others.refused)}: run the command as a user who may write there."
        )
    about = {"modules": len(others.modules), "refused": [str(each) for each in others.refused]}
    tell(done, {"compiled": names, **about}, as_json=as_json)


def _pyspark() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError(
            "this Python has no pyspark: name the installation with --spark-home or SPARK_HOME"
        )
    return Path(spec.origin).parent
