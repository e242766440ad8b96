"""What the errors of a file system or an object store mean, in words and with advice.

The clients of object stores have errors of their own kinds, for example for missing credentials or a missing endpoint,
and each of them keeps what the server answered elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from checkpoint.errors import CheckpointError

_PASSING = frozenset(range(500, 600)) - {501, 505}
"""The statuses of faults of a server that may pass: not that it lacks what it was asked for."""

_UNEXPECTED = "unexpected keyword argument"
"""What Python says of an argument with a name that a function does not have."""


@contextmanager
def explained(url: str, verb: str, name: str, options: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn what a file system raises into an error that says what could not be done where, and what to do.

    Args:
        url: the address of the location.
        verb: what is done there.
        name: the file that it is done with.
        options: what the file system was made with.

    Raises:
        CheckpointError: something was raised.
    """
    try:
        yield
    except (CheckpointError, MemoryError):
        raise
    except Exception as error:
        refuse_unknown_option(url, options or {}, error)
        advice = "try again once it answers; if it never does, " if _is_outage(error) else ""
        raise CheckpointError(
            f"location {url}: cannot {verb} {name}: {said_by(error)}: {advice}check the location and the rights to it"
        ) from error


def refuse_unknown_option(url: str, options: Mapping[str, Any], error: Exception) -> None:
    """Refuse the options of a location if its file system says that one of them means nothing to it.

    Only their names are told: the values may be secrets.

    Raises:
        CheckpointError: it says so.
    """
    if options and _UNEXPECTED in str(error):  # s3fs makes an OSError of the TypeError.
        raise CheckpointError(
            f"location {url}: its file system does not know an option ({said_by(error)}): check the names of the"
            f" options that were given: {', '.join(_names_in(options))}"
        ) from error


def said_by(error: Exception) -> str:
    """Return the message of an error in one line: HDFS without Java goes on to list every path that it tried."""
    said = str(getattr(error, "strerror", None) or error)
    if said == "None":  # What the client of S3 makes of an answer that has a code and no message, as those of Ceph.
        said = _code_of(error)
    return next(filter(None, map(str.strip, said.split("\n"))), type(error).__name__)


def status_of(error: BaseException) -> int | None:
    """Return the status that a server of S3 answered with, if that is known."""
    status: int | None = _answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def lacks_bucket(error: FileNotFoundError) -> bool:
    """Return whether a file of S3 is absent because its bucket is absent: a wrong name, and no place for a space."""
    return _code_of(error) == "NoSuchBucket"


def _is_outage(error: BaseException) -> bool:
    """Return whether a server could not be reached, or says that the fault is its own and may pass."""
    for cause in _causes_of(error):
        kinds = " ".join(kind.__name__ for kind in type(cause).__mro__)
        if "SSL" in kinds or "Certificate" in kinds:
            return False
        # The clients of S3, Azure and GCS each keep the status elsewhere, and have kinds of their own for connections.
        said = (status_of(cause), *(getattr(cause, name, None) for name in ("status_code", "code", "status")))
        if "Connection" in kinds or "Timeout" in kinds or _PASSING.intersection(filter(_is_number, said)):
            return True
    return False


def _causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it, each once: an error can be its own cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_number(status: object) -> bool:
    return isinstance(status, int)


def _code_of(error: BaseException) -> str:
    """Return the name that a server of S3 gave an error, if it did."""
    return str(_answer(error).get("Error", {}).get("Code", ""))


def _answer(error: BaseException) -> dict[str, Any]:
    """Return what a server of S3 answered, as far as an error tells it."""
    found: Any = getattr(error.__cause__, "response", None)
    return found if isinstance(found, dict) else {}


def _names_in(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of options, and of those inside of them, as ``client_kwargs`` has some."""
    for name, value in options.items():
        yield str(name)
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in _names_in(value))
