"""The command ``checkpoint`` and what all its parts share: the path, errors without a traceback, exit statuses."""

from __future__ import annotations

import codecs
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import wraps
from io import TextIOWrapper
from math import isnan
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from uuid import uuid4

import click
import orjson
from click.core import ParameterSource

from checkpoint.address import local_path
from checkpoint.errors import CheckpointError, UnknownCheckpointError
from checkpoint.failures import OPEN_AGAIN, REOPEN
from checkpoint.lock import READ_ONLY
from checkpoint.process import collecting_seldom
from checkpoint.tool import printing
from checkpoint.tool.source import Source

TROUBLE = 2
"""The exit status if something went wrong; 1 is for "different" and "not found"."""

MOST = (1 << 63) - 1
"""The greatest number that SQLite takes."""

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""

_DEBUG = "CHECKPOINT_DEBUG"


class NumberRange(click.FloatRange):
    """A number in a range, but not NaN, which no comparison keeps out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that is meant."""
        found = super().convert(value, param, ctx)
        if isnan(found):
            self.fail(f"{value} is not a number.", param, ctx)
        return found


class Limit(click.IntRange):
    """How many at most, from 0; more than can be counted means as many as there are."""

    def __init__(self) -> None:
        super().__init__(0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that is meant."""
        return min(super().convert(value, param, ctx), MOST - 1)


class Address(click.Path):
    """A path or a URL; a URL that names a path of this machine is that path from here on."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or the URL of another file system."""
        try:
            path = local_path(os.fspath(value))
        except CheckpointError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value if path is None else path, param, ctx)


class _Group(click.Group):
    """A group that suggests the nearest command, and lists its commands in the order of the documentation."""

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """Return the command that is meant."""
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.list_commands(context), 1)
            if near:
                raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", context) from None
            raise error

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of the commands in the order in which one meets them."""
        return [*filter(self.commands.__contains__, ORDER), *sorted(self.commands.keys() - set(ORDER))]


ORDER = (
    *("log", "ls", "show", "diff", "blame", "bisect", "revert", "apply", "verify", "restore", "fork"),
    *("compact", "prune", "gc", "repair", "export", "import", "top", "report", "doctor"),
)
"""The commands in the order in which one meets them."""


_VERSION_HELP = "Show the version and exit."


def _print_version(context: click.Context, parameter: click.Parameter, is_wanted: bool) -> None:
    """Print the version; the packages may also lie on the path without having been installed."""
    from importlib.metadata import PackageNotFoundError, version

    if is_wanted and not context.resilient_parsing:
        try:
            click.echo(f"checkpoint, version {version('objectspace')}")
        except PackageNotFoundError:
            click.echo("checkpoint, not installed: it is run from its files")
        context.exit()


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help=_VERSION_HELP)
def cli() -> None:
    """Look into saved state, compare it, check it and bring it back.

    PATH is a store file, or a location with a space of shards: a folder or an fsspec URL such as s3://bucket/state.
    Commands only read, even while the writer runs, unless their help says that they write.

    A CHECKPOINT is named by its number, by its epoch as @EPOCH, or as HEAD, HEAD~1 and so on; 0 is the empty state
    before the first. For a space the number is the epoch.

    \b
    Examples:
      checkpoint log state.db
      checkpoint diff state.db HEAD~1 HEAD
      checkpoint show state.db orders@12 --where carrier=UA
    """


def complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of objects that a word on the command line may become, for shell completion."""
    from checkpoint.tool.content import State

    path = context.params.get("path")
    try:
        source = path if isinstance(path, Source) else Source(str(path))
        with source.open() as store:
            return [name for name in State(store.reader()).listed() if name.startswith(incomplete)]
    except (CheckpointError, OSError, ValueError, sqlite3.Error):
        return []


def takes_source(function: Callable[..., Any], is_whole: bool = False) -> Callable[..., Any]:
    """Give a command its first argument, PATH, and the options of a space; errors become one line and status 2.

    Args:
        function: what the command does with the source.
        is_whole: it takes no single shard. Its help does not offer the options then, but it says why it refuses them.
    """

    @click.argument("path", type=Address())
    @click.option("--operator", hidden=is_whole, help="For a space: the operator whose state is meant.")
    @click.option("--shard", type=int, hidden=is_whole, help="For a space: the number of the shard; all by default.")
    @wraps(function)
    def _command(path: str, operator: str | None, shard: int | None, **options: Any) -> None:
        source = None
        try:
            source = _source(path, operator, shard)
            function(source, **options)
            sys.stdout.flush()
        except SystemExit as end:
            _flush(end.code)
            raise
        except BrokenPipeError:
            _give_up_output()
        except KeyboardInterrupt:
            _end_interrupted()
        except (click.ClickException, click.exceptions.Exit):
            raise
        except orjson.JSONDecodeError as error:
            _fail(_damage_of(path) or _worded(error), error)
        except (CheckpointError, OSError, ValueError, sqlite3.Error, ImportError, MemoryError) as error:
            _fail(_worded(_collected_meanwhile(source) or error), error)
        except Exception as error:
            if local_path(path) is None:  # what clients of object stores raise has no common type
                _fail(f"{path}: {type(error).__name__}: {error}", error)
            if (damage := _damage_of(path)) is not None:
                _fail(damage, error)
            if type(error).__module__.partition(".")[0] == "objectspace":  # The layer above has errors of its own.
                _fail(_worded(error), error)
            _fail(f"unexpected: {type(error).__name__}: {error} ({_DEBUG}=1 shows where)", error)

    return _command


def takes_path(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that works on a whole store or space its first argument, as :func:`takes_source` does."""
    return takes_source(function, is_whole=True)


def _end_interrupted() -> NoReturn:
    click.echo("interrupted", err=True)
    sys.exit(INTERRUPTED)


def _source(path: str, operator: str | None, shard: int | None) -> Source:
    source = Source(path, operator, shard)
    if not source.is_location and (operator is not None or shard is not None):
        raise CheckpointError(f"{path} is not a space of shards: --operator and --shard do not apply")
    return source


def require_folder(target: str) -> None:
    """Refuse a new file in a folder that does not exist, or at a URL, before anything is read.

    Raises:
        CheckpointError: the folder does not exist, or the target is a URL.
    """
    if local_path(target) is None:
        raise CheckpointError(f"{target} is a URL: what is written is a file; give a path")
    folder = Path(target).parent
    if not folder.is_dir():
        raise CheckpointError(f"{target} cannot be written: the folder {folder} does not exist")


def require_replaceable(target: str, beginning: bytes) -> None:
    """Refuse to overwrite anything but an empty file, or what a command has written there before.

    Args:
        target: the path to write to.
        beginning: how everything that the command writes begins.

    Raises:
        CheckpointError: another file is there.
    """
    if Path(target).is_file():
        with Path(target).open("rb") as file:
            found = file.read(len(beginning))
        if found not in (b"", beginning):
            raise CheckpointError(f"{target} exists and is something else: give the path of a new file")


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears whole or not at all, replacing one that is there.

    What is not a file, such as a pipe or a terminal, is written to directly.
    """
    if target.exists() and not target.is_file():
        # Under its own name: what the link of an open pipe, such as /dev/stdout, leads to has no path.
        with said_of(target, target), target.open("wb") as file:
            yield file
        return
    path = target.resolve()
    staged = path.with_name(f".{uuid4().hex}.tmp")
    try:
        with said_of(target, staged):
            with staged.open("xb") as file:
                yield file
            os.replace(staged, path)
    finally:
        with suppress(OSError):
            staged.unlink(missing_ok=True)


@contextmanager
def said_of(target: Path, staged: Path) -> Iterator[None]:
    """Make errors of writing a staged file name the target that it is for; by themselves they name no file.

    Args:
        target: the path that was given.
        staged: the file that is written instead.

    Raises:
        OSError: it failed; the error names the target.
        CheckpointError: SQLite, which wrote it, failed.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(staged)):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
    except sqlite3.Error as error:
        raise CheckpointError(f"{target} cannot be written (SQLite says: {error})") from error


def _worded(error: BaseException) -> str:
    """Return what an error says; one of the operating system without its number, ours with advice for a command."""
    if isinstance(error, OSError) and error.strerror:
        what = error.strerror[:1].lower() + error.strerror[1:]
        return what if error.filename is None else f"{error.filename}: {what}"
    text = str(error) or type(error).__name__
    for in_programs, in_commands in _ADVICE.items():
        text = text.replace(in_programs, in_commands)
    return text


_ADVICE = {
    REOPEN: ", then run it again",
    OPEN_AGAIN: ", then run it again",
    READ_ONLY: "",
    "call repair() on the store": "run `checkpoint repair`",
    "repair(salvage=True)": "`checkpoint repair --salvage`",
}
"""What the library advises that only a program can do, and what is said instead."""


def _collected_meanwhile(source: Source | None) -> CheckpointError | None:
    """Return the error that says that epochs went while a command read them: what it missed is then no damage."""
    try:
        if source is not None:
            source.require_kept()
    except UnknownCheckpointError as error:
        return error
    except (CheckpointError, OSError):
        pass
    return None


def _damage_of(path: str) -> str | None:
    """Return what is damaged in a store file: the likely cause of an error that no command expects."""
    source = Source(path)
    if source.is_location:
        return None
    try:
        with source.open() as store:
            store.verify()
    except (CheckpointError, sqlite3.Error) as error:
        return _worded(error)
    except Exception as error:
        return f"{path} is damaged ({type(error).__name__}: {error}): see `checkpoint repair`"
    return None


def _fail(message: str, error: BaseException) -> NoReturn:
    if os.environ.get(_DEBUG):
        raise error
    click.echo(f"error: {printing.plain(' '.join(message.split()))}", err=True)
    try:
        sys.stdout.flush()
    except OSError:
        _give_up_output(TROUBLE)
    sys.exit(TROUBLE)


def _flush(status: str | int | None) -> None:
    with answered(status):
        sys.stdout.flush()


@contextmanager
def answered(status: str | int | None) -> Iterator[None]:
    """End with a status if the reader of the output has had enough, and closes the pipe."""
    try:
        yield
    except BrokenPipeError:
        _give_up_output(status)


def _give_up_output(status: str | int | None = 0) -> NoReturn:
    """End quietly: nobody reads on. What is still buffered must go nowhere, or Python complains when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON, one line per entry.")

dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")

name_argument = click.argument("name", shell_complete=complete_names)


def say_limit(limit: int) -> None:
    """Say that there is more, to a user who has set no limit."""
    if click.get_current_context().get_parameter_source("limit") is ParameterSource.DEFAULT:
        click.echo(f"only the first {limit:,}: --limit 0 shows all", err=True)


def load() -> None:
    """Add all commands."""
    from checkpoint.tool import (  # noqa: F401
        blame,
        changes,
        doctor,
        exchange,
        listing,
        live,
        log,
        moving,
        report,
        search,
        show,
        upkeep,
    )


def _shown(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return what stands for a character that the output's encoding lacks: an escape, as in JSON.

    A path need not be text: any part that is not is printed as the byte that it is.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    char = error.object[error.start]
    if "\udc80" <= char <= "\udcff":
        return bytes([ord(char) - 0xDC00]), error.start + 1
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2)), error.start + 1


_SHOWN = "checkpoint.shown"
"""The name under which Python knows what to do with characters that cannot be printed."""


_ASCII = "checkpoint_ascii"
"""Another name for ASCII: click takes a stream with the usual name for a mistake, and writes UTF-8."""


def _ascii(name: str) -> codecs.CodecInfo | None:
    if name != _ASCII:
        return None
    known = codecs.lookup("ascii")
    return codecs.CodecInfo(
        known.encode,
        known.decode,
        known.streamreader,
        known.streamwriter,
        known.incrementalencoder,
        known.incrementaldecoder,
        name=_ASCII,
    )


def _printable() -> None:
    """Print what the output's encoding lacks as escapes, even if that encoding is ASCII."""
    codecs.register(_ascii)
    codecs.register_error(_SHOWN, _shown)
    for stream, errors in ((sys.stdout, _SHOWN), (sys.stderr, None)):
        if isinstance(stream, TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_ASCII if is_ascii else None, errors=errors or stream.errors)


@collecting_seldom()
def main() -> None:
    """Run the command."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It was closed: what is opened first takes its descriptor, and what goes there goes nowhere.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends
    _printable()
    try:
        load()
        cli(prog_name="checkpoint", color=False if os.environ.get("NO_COLOR") else None)
    except OSError as error:  # For a command it has been reported; this is for what comes before one, such as the help.
        _fail(_worded(error), error)
    except KeyboardInterrupt:
        _end_interrupted()
