"""What works through Spark Connect, with a real server on loopback, and what is refused; only with ``--crash``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.patience import PATIENCE
from tests.spark.clusters import connect_server, driver

pytest.importorskip("grpc_status", reason="pip install 'pyspark[connect]'")


def test_what_works_through_connect_and_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(({"k": ["a", "b"], "v": [1, 2]}, {"k": ["a", "c"], "v": [5, 3]})):
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pa.table(rows), path)
        os.utime(path, (number + 1, number + 1))
    client = [sys.executable, "-m", "tests.spark.connect_client", str(tmp_path)]
    with connect_server(tmp_path) as port, driver([*client, str(port)]) as process:
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors[-4000:]
    given = json.loads(out.splitlines()[-1])
    assert given["table"] == [["a", 5], ["b", 2], ["c", 3]]
    assert given["first"] == [["a", 1], ["b", 2]]
    assert given["column"] == [[2], [3], [5]]
    assert given["found"] == [["b", 2]]
    assert given["changes"] == [
        [1, "+", "a", 1],
        [1, "+", "b", 2],
        [2, "+", "c", 3],
        [2, "U+", "a", 5],
        [2, "U-", "a", 1],
    ]
    assert given["worked"] == [[7]]
    assert len(given["refusals"]) == 4
    assert not (tmp_path / "new").exists()
    assert all("expected one of a classic session" in said for said in given["refusals"])
    assert "Pipeline.run_epoch got a DataFrame of a Spark Connect session" in given["in_foreach_batch"]
    assert "location 'space': this process of Spark works in a temporary folder" in given["relative"]
