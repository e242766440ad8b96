"""Errors that come back from executors, as what they are: the library's own message, without the stacks of Java."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from checkpoint import CheckpointError
from objectspace.errors import ObjectSpaceError


class TaskFailedError(ObjectSpaceError, PySparkException):
    """A task of an operator failed for good; the epoch was not published, and the state is that of the epoch before.

    It is one of Spark's errors, too, so that code which catches those goes on to.
    """

    def __init__(self, message: str) -> None:
        PySparkException.__init__(self, message=message)


@contextmanager
def in_words(operator: str, epoch: int) -> Iterator[None]:
    """Let an action of Spark that fails say what happened on its executors.

    Args:
        operator: the operator whose action it is.
        epoch: the epoch that is made.

    Raises:
        TaskFailedError: a task failed for good; what Spark raised, where it says nothing of the kind.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        # What Spark does not know it leaves to Py4J: that an executor was lost, say.
        known = explained(error, operator, epoch)
        raise known from (None if known is not error else error.__cause__)


_LAST_LINE = re.compile(r"^(?P<kind>[A-Za-z_][\w.<>]*)(?:: (?P<said>.+)|:?[ \t]*)$", re.MULTILINE)
"""The last line of a traceback: the error and what it says, or the error alone."""

_GROUP = re.compile(r"\+ Exception Group Traceback.*\n(?:^ *[|+].*\n?)+", re.MULTILINE)
"""What is printed of a group of errors; each line begins with a bar."""

_PLACE = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.MULTILINE)

_INSTALLED = re.compile(
    r"[/\\](?:site-packages|dist-packages|lib[/\\]python3\.\d+|objectspace|checkpoint|pyspark)[/\\]|<frozen"
)
"""Files that are not the user's own."""

_ABORTED = re.compile(r"Job aborted due to stage failure: (?P<said>[^\n]+)")


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
    """Return what a message of Spark says of its tasks: how their Python ended, or else why the job was given up."""
    if groups := _GROUP.findall(text):
        return _said_by_group(re.sub(r"^ *\| ?", "", groups[-1], flags=re.MULTILINE))
    remote = text.rfind("Traceback (most recent call last)")
    found = _LAST_LINE.search(text, remote) if remote >= 0 else None
    if found is None:
        aborted = _ABORTED.search(text)
        return None if aborted is None else aborted["said"].strip().rstrip(".")
    return _raised(text[remote : found.start()], found)


def _said_by_group(tracebacks: str) -> str:
    """Return what a group of errors and each of those in it say."""
    ends = list(_LAST_LINE.finditer(tracebacks))
    starts = [0, *(one.end() for one in ends)]
    return "; ".join(_raised(tracebacks[start : end.start()], end) for start, end in zip(starts, ends, strict=False))


def _raised(traceback: str, last: re.Match[str]) -> str:
    """Return the error of a last line in words, and where it was raised where it is not the library's."""
    kind, said = last["kind"].rpartition(".")[2], last["said"]
    if said and last["kind"].startswith(("objectspace.", "checkpoint.")):
        return said.strip()
    return f"{kind}{f': {said.strip()}' if said else ''}{_place(traceback)}"


def _place(traceback: str) -> str:
    """Return where an error was raised: the last place in code of the user, where there is one."""
    places = [place.groupdict() for place in _PLACE.finditer(traceback)]
    own = [place for place in places if not _INSTALLED.search(place["file"])]
    return " (in {function}, line {line} of {file})".format(**(own or places)[-1]) if places else ""
