"""What Spark says of a failure, as the library tells it."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from pathlib import Path

import pytest

import objectspace
from checkpoint import CheckpointError
from objectspace.spark.errors import TaskFailedError, explained
from objectspace.spark.printable import printable_errors
from objectspace.spark.stateful import WholeEpoch

STACK = """
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
PYTHON = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 9, in main
    process()
  File "job.py", line 3, in process
    assert row["v"]
"""
CYTHON = f"""{PYTHON}  File "pyarrow/table.pxi", line 9, in pyarrow.lib.column
  File "pandas/_libs/index.pyx", line 9, in pandas.get_loc
"""
OF_FOLDERS = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/home/me/checkpoint/job.py", line 3, in process
    longest[row["carrier"]] = row["delay"]
  File "/home/me/objectspace/keys.py", line 5, in keyed
    return numpy.linalg.inv(key)
  File "/opt/lib/python3.12/site-packages/numpy/linalg/linalg.py", line 9, in inv
    raise LinAlgError
"""
STOPPED = f"""{PYTHON}StopIteration: stopped

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/lib/pyspark.zip/pyspark/worker.py", line 9, in func
    yield from verified_iter
RuntimeError: generator raised StopIteration
"""
CHILD = 'ValueError: the child says\nTraceback (most recent call last):\n  File "c.py", line 1, in f\nKeyError: 1'
GROUP = """An exception was thrown from the Python worker:   + Exception Group Traceback (most recent call last):
  |   File "worker.py", line 9, in main
  |     process()
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: a
    | b: c
    +---------------- 2 ----------------
    | KeyError: 'b'
    +------------------------------------
"""
LOST = (
    "An error occurred while calling o81.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage"
    " failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9)"
    " (10.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited).\nDriver stacktrace:"
)
UNREADABLE = (
    "An error occurred while calling o119.collectToPython.\n: org.apache.spark.SparkException:"
    " [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/1.parquet.  SQLSTATE: KD001"
)
CAUSE = "Caused by: java.lang.RuntimeException: file:/in/1.parquet is not a Parquet file"
MALFORMED = "[CAST_INVALID_INPUT] The value 'x' of the type \"STRING\" cannot be cast. SQLSTATE: 22018"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (f"{PYTHON}ZeroDivisionError: by zero\n{STACK}", "ZeroDivisionError: by zero (in process, line 3 of job.py)"),
        (f"{PYTHON}AssertionError\n{STACK}", "AssertionError (in process, line 3 of job.py)"),
        (f"{PYTHON}job.made.<locals>.Refused: no\n{STACK}", "Refused: no (in process, line 3 of job.py)"),
        (f"{PYTHON}job.Stop\n{STACK}", "Stop (in process, line 3 of job.py)"),
        (
            f"{GROUP}\n{STACK}",
            "ExceptionGroup: two (2 sub-exceptions) (in main, line 9 of worker.py); ValueError: a\nb: c; KeyError: 'b'",
        ),
        (
            f"{PYTHON}ValueError: one\ntwo: 2\n\n  3\n{STACK}",
            "ValueError: one\ntwo: 2\n\n  3 (in process, line 3 of job.py)",
        ),
        (f"{PYTHON}{CHILD}\n{STACK}", f"{CHILD} (in process, line 3 of job.py)"),
        (f"{CYTHON}KeyError: 'v'\n{STACK}", "KeyError: 'v' (in process, line 3 of job.py)"),
        (f"{OF_FOLDERS}ValueError: 1\n{STACK}", "ValueError: 1 (in keyed, line 5 of /home/me/objectspace/keys.py)"),
        (
            f"{STOPPED}{STACK}Caused by: {STOPPED}{STACK}",
            "RuntimeError: generator raised StopIteration, from StopIteration: stopped (in process, line 3 of job.py)",
        ),
        (f"{PYTHON}checkpoint.errors.CheckpointError: the disk is full\n{STACK}", "the disk is full"),
        (
            f"{PYTHON}ModuleNotFoundError: No module named 'objectspace.codec'\n{STACK}",
            "ModuleNotFoundError: No module named 'objectspace.codec' (in process, line 3 of job.py), which the driver"
            " has: the tasks run another Python, on a laptop the python3 of the PATH; set the environment variable"
            f" PYSPARK_PYTHON to one that has it, as {sys.executable}, before Spark is started",
        ),
        (
            f"{PYTHON}ModuleNotFoundError: No module named 'no_such_package'\n{STACK}",
            "ModuleNotFoundError: No module named 'no_such_package' (in process, line 3 of job.py)",
        ),
        (f"{LOST}\n{STACK}", LOST.partition("failure: ")[2].partition(".\n")[0]),
        (
            f"{UNREADABLE}{STACK}{CAUSE}{STACK}",
            f"{UNREADABLE.partition('Exception: ')[2]}: file:/in/1.parquet is not a Parquet file",
        ),
        (f"{MALFORMED}\n== SQL (line 1, position 1) ==\ncast(k as int)\n^^^^", MALFORMED),
    ],
)
def test_a_failure_is_told_in_words(message: str, said: str) -> None:
    told = explained(RuntimeError(message), "counts", 7)
    assert isinstance(told, TaskFailedError)
    assert str(told).startswith(f"operator counts, epoch 7: {said}; nothing of the epoch was published")


@pytest.mark.parametrize(
    ("said", "name", "told"),
    [
        ("operator 'counts' (Mine) returned what does not fit", "counts", "Mine returned what does not fit"),
        ("operator sums: there is no shard", "sums", "there is no shard"),
        ("operator 'other' (Mine) returned 1", "counts with sums", "operator 'other' (Mine) returned 1"),
        ("long" * 1_000, "counts with sums", f"{'long' * 500} ... (2,000 more characters)"),
    ],
)
def test_where_a_task_failed_is_told_once_with_the_shard(said: str, name: str, told: str) -> None:
    printed = f"objectspace.errors.ObjectSpaceError: {said}\noperator counts with sums, shard 3, epoch 7\n{STACK}"
    found = str(explained(RuntimeError(f"{PYTHON}{printed}"), "counts", 7))
    assert found.startswith(f"operator {name}, shard 3, epoch 7: {told}; nothing of the epoch was published")


@pytest.mark.parametrize("folder", [Path(objectspace.__file__).parent, Path("/elsewhere/objectspace")])
def test_the_place_is_that_of_the_user_wherever_the_library_lies(folder: Path) -> None:
    lines, first = inspect.getsourcelines(WholeEpoch.__call__)
    frame = f'  File "{folder}/spark/stateful.py", line {first}, in __call__\n    {lines[0].strip()}\n'
    told = explained(RuntimeError(f"{PYTHON}{frame}TypeError: no\n{STACK}"), "counts", 7)
    assert "TypeError: no (in process, line 3 of job.py)" in str(told)


def noted(error: BaseException) -> BaseException:
    error.add_note("of caf\udce9")
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CheckpointError("no caf\udce9"), "CheckpointError: no caf\\udce9"),
        (noted(KeyError("k")), "KeyError: 'k'\nof caf\\udce9"),
        (noted(OverflowError()), "OverflowError: of caf\\udce9"),
        (SystemExit("\ud800"), "SystemExit: \\ud800"),
    ],
)
def test_an_error_that_cannot_be_sent_says_the_same(error: BaseException, said: str) -> None:
    error.__cause__ = ValueError("\udce9")
    with pytest.raises(Exception, match=re.escape(said.partition(": ")[2])) as told, printable_errors():
        raise error
    printed = "".join(traceback.format_exception(told.value))
    assert printed.encode().decode().strip().endswith(f"{said}\nfrom ValueError: \\udce9")
    assert printed.count("Traceback") == 1
    assert told.value.__traceback__ is not None


def test_an_error_that_can_be_sent_is_not_touched() -> None:
    error = KeyError("k")
    with pytest.raises(KeyError) as told, printable_errors():
        raise error
    assert told.value is error


def test_a_long_message_is_shortened() -> None:
    told = str(explained(RuntimeError(f"{PYTHON}ValueError: {'long' * 1_000}\n{STACK}"), "counts", 7))
    assert "longlong ... (2,000 more characters) (in process, line 3 of job.py)" in told
    assert len(told) < 2_300


@pytest.mark.parametrize(
    "message",
    [
        "java.lang.InterruptedException: the query was stopped",
        f"An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED]"
        f" Job 5 cancelled part of cancelled job group. SQLSTATE: XXKDA\n{STACK}",
    ],
)
def test_what_says_nothing_of_a_task_stays_as_it_is(message: str) -> None:
    stopped = RuntimeError(message)
    assert explained(stopped, "counts", 7) is stopped
