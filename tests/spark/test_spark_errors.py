"""What Spark says of a failure, as the library tells it."""

from __future__ import annotations

import pytest

from objectspace.spark.errors import TaskFailedError, explained

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
GROUP = """An exception was thrown from the Python worker:   + Exception Group Traceback (most recent call last):
  |   File "worker.py", line 9, in main
  |     process()
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: a
    +---------------- 2 ----------------
    | KeyError: 'b'
    +------------------------------------
"""
LOST = (
    "An error occurred while calling o81.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage"
    " failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9)"
    " (10.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited).\nDriver stacktrace:"
)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (f"{PYTHON}ZeroDivisionError: by zero\n{STACK}", "ZeroDivisionError: by zero (in process, line 3 of job.py)"),
        (f"{PYTHON}AssertionError\n{STACK}", "AssertionError (in process, line 3 of job.py)"),
        (f"{PYTHON}job.made.<locals>.Refused: no\n{STACK}", "Refused: no (in process, line 3 of job.py)"),
        (f"{PYTHON}job.Stop\n{STACK}", "Stop (in process, line 3 of job.py)"),
        (
            f"{GROUP}\n{STACK}",
            "ExceptionGroup: two (2 sub-exceptions) (in main, line 9 of worker.py); ValueError: a; KeyError: 'b'",
        ),
        (f"{PYTHON}checkpoint.errors.CheckpointError: the disk is full\n{STACK}", "the disk is full"),
        (f"{LOST}\n{STACK}", LOST.partition("failure: ")[2].partition(".\n")[0]),
    ],
)
def test_a_failure_is_told_in_one_line(message: str, said: str) -> None:
    told = explained(RuntimeError(message), "counts", 7)
    assert isinstance(told, TaskFailedError)
    assert str(told).startswith(f"operator counts, epoch 7: {said}; nothing of the epoch was published")


def test_what_says_nothing_of_a_task_stays_as_it_is() -> None:
    stopped = RuntimeError("java.lang.InterruptedException: the query was stopped")
    assert explained(stopped, "counts", 7) is stopped
