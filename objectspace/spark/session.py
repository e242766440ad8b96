"""A Spark session that keeps its log to itself."""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from objectspace.spark.java import ensure_java
from objectspace.spark.source import ObjectSpaceSource

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Two shuffle tasks on a laptop, not two hundred; the shards name their own number in any case.
    "spark.sql.shuffle.partitions": "2",
    # Planning stage by stage is for large queries: a micro-batch has two stages, and the shards say how they are cut.
    "spark.sql.adaptive.enabled": "false",
    # On TCP the first rows of a task wait for the acknowledgement of what was sent before them, which Linux delays.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
# The default one asks of each file that a query keeps whether it is a link, and starts a process for each question.
_WITHOUT_PROCESSES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def quiet_session(
    name: str = "objectspace",
    master: str | None = None,
    log: str | os.PathLike[str] | None = None,
    config: dict[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session that writes nothing to the terminal; the running one, if there is one.

    Spark's Java process inherits its standard error when it starts, so for that moment the file descriptor of this
    process points to the log.

    Args:
        name: the name of the application.
        master: where to run; two local threads that retry a failed task three times by default.
        log: the file for what Spark logs, or None to drop it.
        config: further settings, which take precedence.

    Raises:
        JavaNotFoundError: there is no Java to run on.
        PySparkRuntimeError: Spark does not start; a note names the log.

    Time: the start of Java, if no session is running.
    Dirties: ``JAVA_HOME`` and, if they are unset, ``SPARK_LOCAL_IP`` and ``PYSPARK_PYTHON`` of this process; its filter
        for one warning and the levels of two of Spark's loggers.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    ensure_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark's own default for the workers is the python3 on the PATH, which need not be the one that runs here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Every mapInArrow says so, though it does not use pandas at all, only asks for it.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    # It prints, with the whole Java stack, what is raised as an exception in any case.
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    # What foreachBatch raises comes out of the query, where somebody waits for it.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.appName(name).master(master or "local[2,4]")
    for key, value in {**_QUIET, **(config or {})}.items():
        builder = builder.config(key, value)
    with _standard_error_to(Path(log) if log else Path(os.devnull)) as target:
        try:
            session = builder.getOrCreate()
        except PySparkRuntimeError as error:
            error.add_note(f"What Spark and Java wrote: {target}")
            raise
    # Spark finds the format by itself if the package lies in a folder of sys.path, unlike an editable install.
    session.dataSource.register(ObjectSpaceSource)
    _start_no_processes_for_files(session)
    return session


def _start_no_processes_for_files(session: SparkSession) -> None:
    """Let queries keep their files by other means, unless the settings of Spark name some, or it has these no more."""
    if session.conf.get(_FILE_MANAGER, None) is not None:
        return
    with suppress(Py4JError):
        session._jvm.java.lang.Class.forName(_WITHOUT_PROCESSES)  # type: ignore[union-attr]
        session.conf.set(_FILE_MANAGER, _WITHOUT_PROCESSES)


@contextmanager
def _standard_error_to(target: Path) -> Iterator[Path]:
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with open(target, "ab") as file:
            os.dup2(file.fileno(), 2)
        yield target
    finally:
        os.dup2(saved, 2)
        os.close(saved)
