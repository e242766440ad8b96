"""Errors that come back from executors, as what they are: the library's own message, without the stacks of Java."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from checkpoint import CheckpointError
from objectspace.errors import ObjectSpaceError


class TaskFailedError(ObjectSpaceError, PySparkException):
    """A task of an operator failed for good; the epoch was not published, and the state is that of the epoch before.

    It is one of Spark's errors, too, so that code which catches those goes on to.
    """

    def __init__(self, message: str) -> None:
        PySparkException.__init__(self, message=message)


_LAST_LINE = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)?): (?P<said>.+)", re.MULTILINE)


def explained(error: BaseException, operator: str, epoch: int) -> BaseException:
    """Return what happened on an executor in words; an error that says nothing of the kind stays as it is.

    Args:
        error: what Spark raised.
        operator: the operator whose action failed.
        epoch: the epoch that was made.
    """
    if isinstance(error, CheckpointError | ObjectSpaceError):
        return error
    said = _said(str(error))
    if said is None:
        return error
    made = TaskFailedError(
        f"operator {operator}, epoch {epoch}: {said}; nothing of the epoch was published: mend the cause and start the"
        " query again, which replays its micro-batch"
    )
    made.__suppress_context__ = True
    return made


def _said(text: str) -> str | None:
    """Return the last line of the Python traceback in a message of Spark."""
    remote = text.rfind("Traceback (most recent call last)")
    if remote < 0:
        return None
    found = _LAST_LINE.search(text, remote)
    if found is None:
        return None
    kind, said = found["kind"].rpartition(".")[2], found["said"].strip()
    ours = found["kind"].startswith(("objectspace.", "checkpoint."))
    return said if ours else f"{kind}: {said}"
