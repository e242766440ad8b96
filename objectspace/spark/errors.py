"""Errors that come back from executors, as what they are: the library's own message, without Java's stacks."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from pickle import PickleError

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import checkpoint
import objectspace
from checkpoint import CheckpointError
from objectspace.errors import ObjectSpaceError


class TaskFailedError(ObjectSpaceError, PySparkException):
    """A task of an operator failed for good; the epoch was not published, and the state is that of the epoch before.

    It is one of Spark's errors, too, so code that catches those goes on catching it.
    """

    def __init__(self, message: str) -> None:
        PySparkException.__init__(self, message=message)


@contextmanager
def in_words(operator: str, epoch: int) -> Iterator[None]:
    """Make an action of Spark that fails say what happened on its executors.

    Args:
        operator: the operator whose action it is.
        epoch: the epoch that is made.

    Raises:
        TaskFailedError: a task failed for good, or could not be sent. If what Spark raised says nothing of the kind,
            that is raised unchanged.
    """
    try:
        yield
    except PickleError as error:
        raise _not_sent(error, operator, epoch) from None
    except (PySparkException, Py4JJavaError) as error:
        # What Spark does not know it leaves to Py4J: that an executor was lost, say.
        known = explained(error, operator, epoch)
        raise known from (None if known is not error else error.__cause__)


def _not_sent(error: PickleError, operator: str, epoch: int) -> TaskFailedError:
    """Return the error for code of the user that Spark cannot copy to its tasks."""
    said = _shortened(str(error).removeprefix("Could not serialize object: ").rstrip("."))
    return TaskFailedError(
        f"operator {operator}, epoch {epoch}: its code, or that of a function in its task, cannot be sent to tasks"
        f" ({said}): make in process(), or in the function, what cannot be copied, and use no DataFrame or"
        " SparkSession in it; nothing of the epoch was published: start the query again, which replays its micro-batch"
    )


_BEGINS = "Traceback (most recent call last):"

_CHAINED = re.compile(
    r"^(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):$",
    re.MULTILINE,
)
"""What stands between the traceback of a cause and that of what came of it."""

_LAST_LINE = re.compile(r"^(?P<kind>[A-Za-z_][\w.<>]*)(?::(?: .*)?|[ \t]*)$", re.MULTILINE)
"""The line after a traceback: the error and what it says, or the error alone; more lines of what it says may follow."""

_STACK = re.compile(r"^(?:\s*\tat |Driver stacktrace:)", re.MULTILINE)
"""Where Java's part begins."""

_GROUP = re.compile(r"\+ Exception Group Traceback.*\n(?:^ *[|+].*\n?)+", re.MULTILINE)
"""What is printed of a group of errors; each line begins with a bar."""

_BETWEEN = re.compile(r"^ *\+-[-+]*(?: (?:\d+|\.\.\.) -+)?$", re.MULTILINE)
"""What stands between the errors of a group."""

_PLACE = re.compile(
    r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)(?:\n {4,}(?P<shown>\S.*))?', re.MULTILINE
)
"""A line of a traceback, with the text of the code if it shows that."""

_INSTALLED = re.compile(
    r"[/\\](?:site-packages|dist-packages|lib[/\\]python3\.\d+|pyspark\.zip|py4j-[^/\\]+\.zip)[/\\]|^<frozen"
    r"|\.p(?:yx|xi|xd)$"
)
"""Files that are not the user's own, wherever they lie: those of Cython have the paths of where they were compiled."""

_HOMES = [Path(str(package.__file__)).parent for package in (checkpoint, objectspace, pyspark)]
"""Where the library and Spark lie on this machine."""

_ABORTED = re.compile(r"Job aborted due to stage failure: (?P<said>[^\n]+)")

_CLASSED = re.compile(r"^(?:: [\w.$]+: )?(?P<said>\[(?P<condition>[A-Z][\w.]*)\] [^\n]+)", re.MULTILINE)
"""One of Spark's own errors, with the name of its condition: a file that it cannot read, say."""

_CAUSE = re.compile(r"^Caused by: [\w.$]+: (?P<said>[^\n]+)", re.MULTILINE)

_LACKING = re.compile(r"ModuleNotFoundError: No module named '(?P<package>\w+)")

_OTHER_PYTHON = (
    ", which the driver has: the tasks run another Python, on a laptop the python3 of the PATH; set the environment"
    f" variable PYSPARK_PYTHON to one that has it, as {sys.executable}, before Spark is started"
)

_AND = " with "
"""What stands between the operators of a task."""

_NOTE = re.compile(r"^operator (?P<names>.+), shard (?P<shard>\d+), epoch \d+(?:\n|\Z)", re.MULTILINE)
"""The line in which a task notes where an error of the library was raised: what is told begins with that."""

_LONGEST = 2_000
"""How many characters are shown of what an error says."""


@dataclass(frozen=True)
class _Raised:
    """An error of Python as it was printed.

    Args:
        kind: its class, with the module.
        said: what it says.
        traceback: how it came about.
    """

    kind: str
    said: str
    traceback: str

    @classmethod
    def of(cls, text: str) -> _Raised | None:
        """Return the first error in a text, ``None`` if there is none: any other is part of what it says."""
        begin = max(text.find(_BEGINS), 0)
        found = _LAST_LINE.search(text, begin)
        if found is None:
            return None
        after = found.end("kind")
        stack = _STACK.search(text, after)
        said = text[after : stack.start() if stack else None].removeprefix(":").strip()
        return cls(found["kind"], _shortened(_NOTE.sub("", said).strip()), text[begin : found.start()])

    @property
    def is_ours(self) -> bool:
        """Whether it is an error of the library that says what happened."""
        return bool(self.said) and self.kind.startswith(("objectspace.", "checkpoint."))

    @property
    def words(self) -> str:
        """The error without its place."""
        return f"{self.kind.rpartition('.')[2]}{f': {self.said}' if self.said else ''}"

    def place(self, *, own: bool) -> str:
        """Return where it was raised: the last place of all, or the last in the user's code; empty if there is none."""
        places = [place for place in _PLACE.finditer(self.traceback) if not own or _is_own(place)]
        return " (in {function}, line {line} of {file})".format(**places[-1].groupdict()) if places else ""


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
    noted = _NOTE.search(str(error))
    name, said = _told_of(noted["names"] if noted else operator, said)
    shard = f", shard {noted['shard']}" if noted else ""
    made = TaskFailedError(
        f"operator {name}{shard}, epoch {epoch}: {said}; nothing of the epoch was published: fix the cause and start"
        " the query again, which replays its micro-batch"
    )
    made.__suppress_context__ = True
    return made


def _told_of(operators: str, said: str) -> tuple[str, str]:
    """Return which of the operators of a task an error is of, and what it says without that name.

    >>> _told_of("mine with kept", "operator 'mine' (Mine) returned None"), _told_of("mine", "operator mine: no")
    (('mine', 'Mine returned None'), ('mine', 'no'))
    >>> _told_of("mine with kept", "the disk is full")
    ('mine with kept', 'the disk is full')
    """
    for name in operators.split(_AND):
        named = rf"operator (?:{re.escape(repr(name))} \((?P<kind>[^)]+)\)|{re.escape(name)}: )"
        if found := re.match(named, said):
            return name, (found["kind"] or "") + said[found.end() :]
    return operators, said


def _said(text: str) -> str | None:
    """Return what a message of Spark says of its tasks: how their Python ended, or else why the job was given up.

    A job that was cancelled has not failed: Spark itself knows by its own error that a query was stopped.
    """
    if groups := _GROUP.findall(text):
        return _said_by_group(re.sub(r"^ *\| ?", "", groups[-1], flags=re.MULTILINE))
    if _BEGINS in text and (told := _told(text)) is not None:
        return told + _missing_there(told)
    if (aborted := _ABORTED.search(text)) is not None:
        return aborted["said"].strip().rstrip(".")
    classed = _CLASSED.search(text)
    if classed is None or "CANCELLED" in classed["condition"]:
        return None
    return _shortened(": ".join([classed["said"].strip(), *_CAUSE.findall(text)[-1:]]).rstrip("."))


def _said_by_group(printed: str) -> str:
    """Return what a group of errors and each of those in it say."""
    return "; ".join(filter(None, map(_told, _BETWEEN.split(printed))))


def _told(text: str) -> str | None:
    """Return in words the error that a text ends with, and where it was raised if it is not the library's.

    If none of the user's code raised it, its cause may say more: of a ``StopIteration`` only Python speaks.
    """
    *before, last = _CHAINED.split(text)
    raised = _Raised.of(last)
    if raised is None:
        return None
    if raised.is_ours:
        return raised.said
    if place := raised.place(own=True):
        return raised.words + place
    for text_before in reversed(before):
        cause = _Raised.of(text_before[max(text_before.rfind(_BEGINS), 0) :])
        if cause is not None and (place := cause.place(own=True)):
            return f"{raised.words}, from {cause.words}{place}"
    return raised.words + raised.place(own=False)


def _missing_there(told: str) -> str:
    """Return what to do if a task lacks a package that this process has: it runs another Python."""
    found = _LACKING.match(told)
    try:
        is_here = found is not None and find_spec(found["package"]) is not None
    except ValueError:  # It runs as a script, or was made by hand.
        is_here = True
    return _OTHER_PYTHON if is_here else ""


def _is_own(place: re.Match[str]) -> bool:
    """Return whether a line of a traceback is the user's code."""
    return not _INSTALLED.search(place["file"]) and not any(_is_in(home, place) for home in _HOMES)


def _is_in(home: Path, place: re.Match[str]) -> bool:
    """Return whether a line of a traceback is in a package, which may lie elsewhere on the machine of a task.

    A folder of the same name is not that package: it has other files, or other lines in them.
    """
    path = place["file"].replace("\\", "/")
    if path.startswith(f"{home.as_posix()}/"):
        return True
    _, found, name = path.rpartition(f"/{home.name}/")
    if not found or not (home / name).is_file():
        return False
    return place["shown"] in (None, linecache.getline(str(home / name), int(place["line"])).strip())


def _shortened(said: str) -> str:
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ... ({len(said) - _LONGEST:,} more characters)"
