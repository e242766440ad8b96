"""The command ``checkpoint`` and what all its parts share: the path, errors without a traceback, exit statuses."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any

import click

from checkpoint.errors import CheckpointError
from checkpoint.tool.source import Source

TROUBLE = 2
"""The exit status where something went wrong; 1 is for "different" and "not found"."""


class _Group(click.Group):
    """A group that suggests the nearest command, and lists its commands in the order of the documentation."""

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """Return the command that is meant."""
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.list_commands(context), 1)
            if near:
                raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", context) from None
            raise

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of the commands as they were added."""
        return list(self.commands)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="objectspace")
def cli() -> None:
    """Look into saved state, compare it, check it and bring it back.

    PATH is a store file, or a location with a space of shards: a folder or an fsspec URL such as s3://bucket/state.
    Commands only read unless their help says that they write, also while the writer runs.

    A CHECKPOINT is named by its number, by its epoch as @EPOCH, or as HEAD, HEAD~1 and so on; 0 is the empty state
    before the first.
    """


def takes_source(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command its first argument, PATH, and the options of a space; errors become one line and status 2."""

    @click.argument("path")
    @click.option("--operator", help="Of a space: the operator whose state is meant.")
    @click.option("--shard", type=int, default=0, show_default=True, help="Of a space: the number of the shard.")
    @wraps(function)
    def _command(path: str, operator: str | None, shard: int, **options: Any) -> Any:
        try:
            return function(Source(path, operator, shard), **options)
        except BrokenPipeError:
            # Who reads has enough. What is buffered yet must go nowhere, or Python complains when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except (CheckpointError, OSError, ValueError, sqlite3.Error, ImportError) as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(TROUBLE)

    return _command


json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON, a line for each entry.")


def load() -> None:
    """Add all commands."""
    from checkpoint.tool import changes, exchange, listing, live, report, search, upkeep  # noqa: F401


def main() -> None:
    """Run the command."""
    load()
    cli(prog_name="checkpoint")
