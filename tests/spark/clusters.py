"""Clusters on this machine, from what the Spark package itself brings; nothing listens beyond loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

import objectspace
from objectspace.spark import ensure_java

ROWS = 400
KEYS = 53
START = 1_700_000_000
"""When the first file was written, as far as Spark is told: it takes files in the order of their times."""


def make_input(folder: Path, files: int) -> None:
    """Write the files that are fed one by one, after those that are there, a second apart for Spark."""
    (folder / "input").mkdir(parents=True, exist_ok=True)
    there = len(list((folder / "input").iterdir()))
    for number in range(there, there + files):
        keys, values = zip(*rows_of(number), strict=True)
        path = folder / "input" / f"{number:04d}.parquet"
        pq.write_table(pa.table({"key": keys, "value": values}), path)
        os.utime(path, (START + number, START + number))


def consumed(query: Path, batch: int) -> list[int]:
    """Return the numbers of the files that the micro-batches of a query up to one consist of, as Spark noted them.

    A driver that is killed after Spark has noted the next file and before it has noted the next micro-batch leaves a
    file without one; the micro-batch that is planned next takes it together with the file after it. So the number of a
    micro-batch is not that of its file.
    """
    end = json.loads((query / "offsets" / str(batch)).read_text().splitlines()[-1])["logOffset"]
    logs = [path for path in (query / "sources" / "0").iterdir() if re.fullmatch(r"\d+(\.compact)?", path.name)]
    noted = [json.loads(line) for path in logs for line in path.read_text().splitlines()[1:]]
    files = {entry["path"] for entry in noted if entry["batchId"] <= end}
    return sorted(int(path.rpartition("/")[2].partition(".")[0]) for path in files)


def rows_of(number: int) -> list[tuple[str, int]]:
    """Return the rows of a file."""
    return [(f"k{(n * 7 + number) % KEYS}", (n * 31 + number * 17) % 1009) for n in range(ROWS)]


def answer(files: int | Iterable[int]) -> dict[str, tuple[int, int]]:
    """Return rows and sum of every key over the first files, or over some files, counted in plain Python."""
    found: dict[str, tuple[int, int]] = {}
    for number in range(files) if isinstance(files, int) else files:
        for key, value in rows_of(number):
            count, total = found.get(key, (0, 0))
            found[key] = count + 1, total + value
    return found


def environment() -> dict[str, str]:
    """Return the environment of a process that runs Spark: loopback only, and with this library importable."""
    root = str(Path(objectspace.__path__[0]).parent)
    return {
        **os.environ,
        "JAVA_HOME": str(ensure_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": root,
    }


def command(folder: Path, master: str, fault: str, **config: Any) -> list[str]:
    """Return the command of a driver."""
    settings = [f"{key}={value}" for key, value in config.items()]
    return [sys.executable, "-m", "tests.spark.failing_driver", str(folder), master, fault, *settings]


@contextmanager
def driver(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a driver in a process group of its own, which is killed at the end with all that it has started."""
    process = subprocess.Popen(
        arguments,
        env=environment(),
        cwd=environment()["PYTHONPATH"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_group(process)
        process.communicate()


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process that was started in a group of its own, and the group: Python, Java and its workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Run a master and two workers on two addresses of loopback, and give the address of the master."""
    port = free_port()
    running = [daemon(folder, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
    try:
        wait_for("127.0.0.1", port)
        for host in ("127.0.0.1", "127.0.0.2"):
            place = folder / f"worker-{host}"
            size = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(place))
            running.append(daemon(folder, "worker.Worker", "--host", host, *size, f"spark://127.0.0.1:{port}"))
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in reversed(running):
            kill_group(process)
            process.wait()


@contextmanager
def connect_server(folder: Path) -> Iterator[int]:
    """Run a server of Spark Connect, whose Python processes can import the library, and give its port."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
    }
    server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2,4]")
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    process = daemon(folder, "SparkSubmit", *server, *conf, "spark-internal")
    try:
        wait_for("127.0.0.1", port)
        yield port
    finally:
        kill_group(process)
        process.wait()


def daemon(folder: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a daemon of Spark in a process group of its own."""
    script = Path(pyspark.__path__[0]) / "bin" / "spark-class"
    with open(folder / f"{name}.log", "ab") as log:
        return subprocess.Popen(
            ["bash", str(script), f"org.apache.spark.deploy.{name}", *arguments],
            env={**environment(), "SPARK_HOME": pyspark.__path__[0]},
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(host: str, port: int, patience: float = 60) -> None:
    """Wait until somebody listens."""
    end = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
