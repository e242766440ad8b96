"""How commands print: aligned columns on a terminal and in a pipe alike, JSON, CSV, and progress on a terminal only."""

from __future__ import annotations

import csv
import io
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, TypeVar

import click
import orjson

from checkpoint.progress import silent

SPARKS = "▁▂▃▄▅▆▇█"

Row = dict[str, Any]
"""What is shown of an entry, a change or anything else, by column."""

T = TypeVar("T")

Show = Callable[[int, int | None], None]
"""Takes how much is done, and out of how much; None if nobody knows."""


def short(value: Any, width: int = 60) -> str:
    """Return a value in one line: JSON, cut if it is long, without what a terminal would obey."""
    text = value if isinstance(value, str) else as_json(value)
    text = plain(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def short_pair(old: Any, new: Any, width: int = 60) -> tuple[str, str]:
    """Return two values in one line each; long ones from a little before the place where they differ.

    >>> short_pair("a" * 30 + "b" * 9, "a" * 30 + "c" * 9, width=20)
    ('…aaaaabbbbbbbbb', '…aaaaaccccccccc')
    """
    texts = [value if isinstance(value, str) else as_json(value) for value in (old, new)]
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    start = max(0, same - width // 4) if same > width // 2 and max(map(len, texts)) > width else 0
    left, right = (("…" if start else "") + short(text[start:], width) for text in texts)
    return left, right


def labels(names: Sequence[str], width: int = 50) -> list[str]:
    """Return names in one line each, of which no two look alike, short where that leaves them apart.

    In a long one "…" stands for the name of the operator where it is repeated, or else for the middle.

    >>> labels(["flights.Join/0: flights.Join/left", "flights.Join/0: flights.Join/left_times"], width=28)
    ['flights.Join/0: …/left', 'flights.Join/0: …/left_times']
    >>> labels(["one long name", "one long nest", "two names"], width=9), labels(["abcde", "abxde"], width=4)
    (['one …name', 'one …nest', 'two names'], ['abcde', 'abxde'])
    """
    whole = [plain(name) for name in names]
    cut = [text if len(text) <= width else _without_middle(_REPEATED.sub(r"\1…/", text), width) for text in whole]
    times = Counter(cut)
    return [short_one if times[short_one] == 1 else text for short_one, text in zip(cut, whole, strict=True)]


_REPEATED = re.compile(r"^((.+)/\d+: )\2/")
"""The shard that an object belongs to, whose name begins with the operator again."""


def _without_middle(text: str, width: int) -> str:
    end = width // 2
    return text if len(text) <= width else f"{text[: width - end - 1]}…{text[-end:]}"


def plain(text: str) -> str:
    r"""Return a text with its control characters as escapes, so that what is stored cannot steer a terminal.

    >>> plain("a\nb\x1b[2J")
    'a\\nb\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text
    )


def as_json(value: Any) -> str:
    r"""Return a value as JSON in one line, without what a terminal would obey.

    >>> as_json({"a\x9b": "\x1b[2J\u202e"})
    '{"a\\u009b":"\\u001b[2J\\u202e"}'
    """
    try:
        text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (orjson.JSONEncodeError, UnicodeError):
        import json  # takes what orjson refuses: lone surrogates and integers beyond 64 bits

        text = json.dumps(value, default=str)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters and direction marks that JSON holds as they are: as escapes they say the same."""


def key(value: Any) -> str:
    """Return a key in one line; a text that reads as another key stands in quotes, to be told from that.

    >>> key(1), key("1"), key("a"), key(None), key("null")
    ('1', '"1"', 'a', 'null', '"null"')
    """
    if isinstance(value, str) and _READS_AS_ANOTHER.fullmatch(value):
        return short(as_json(value), 40)
    return short(value, 40)


_READS_AS_ANOTHER = re.compile(r"-?\d+(\.\d+)?|null|true|false|[\[{\"].*", re.DOTALL)


def emit(is_json: bool, fields: dict[str, Any], text: str) -> None:
    """Print what a command has to say: its fields as JSON, or a sentence."""
    click.echo(as_json(fields) if is_json else text)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a table; columns of numbers are aligned to the right, and nothing is drawn.

    >>> list(table(["name", "slots"], [["a", 7], ["bc", 1200]]))
    ['name  slots', 'a         7', 'bc    1,200']
    >>> list(table(["name", "kind"], [["数", "List"], ["abc", "Set"]]))
    ['name  kind', '数    List', 'abc   Set']
    """
    header, texts = [plain(title) for title in header], [[_cell(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(header, *texts, strict=True)]
    kinds = [{type(row[column]) for row in rows} - {type(None)} for column in range(len(header))]
    numbers = [bool(found) and found <= {int, float} for found in kinds]
    for row in [header, *texts]:
        fills = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        padded = [
            fill + cell if number else cell + fill for cell, fill, number in zip(row, fills, numbers, strict=True)
        ]
        yield "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # on demand: most output does not need it

    return cell_len(text)


def _cell(cell: Any) -> str:
    return f"{cell:,}" if type(cell) is int else "" if cell is None else plain(str(cell))


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table."""
    for line in table(header, rows):
        click.echo(line)


def csv_line(cells: Sequence[Any]) -> str:
    r"""Return one line of CSV without its end.

    >>> csv_line([1, "of two\nlines"])
    '1,"of two\nlines"'
    """
    out = io.StringIO()
    # The writer quotes text that breaks a line only if it knows the break as the end of a line.
    csv.writer(out, lineterminator="\r\n").writerow([flat(cell) for cell in cells])
    return out.getvalue().removesuffix("\r\n")


def flat(value: Any) -> Any:
    """Return a value that a cell can hold: numbers and text as they are, everything else as JSON.

    >>> flat(1), flat(True), flat([1, "a"])
    (1, 'true', '[1,"a"]')
    """
    return value if value is None or type(value) in (str, int, float) else as_json(value)


def command_line(*words: object) -> str:
    """Return a command of the tool as one types it in a shell; the last word is no option, whatever it begins with.

    >>> command_line("show", "s.db", "two words"), command_line("diff", "s.db", "HEAD~1", "HEAD", "-x")
    ("checkpoint show s.db 'two words'", 'checkpoint diff s.db HEAD~1 HEAD -- -x')
    """
    *others, last = map(str, words)
    typed = ["checkpoint", *others, *(["--"] if last.startswith("-") else []), last]
    # A tilde means something to a shell only at the beginning of a word.
    return " ".join(word if _BARE.fullmatch(word) else shlex.quote(word) for word in typed)


_BARE = re.compile(r"[\w@%+=:,./-][\w@%+=:,./~-]*", re.ASCII)


def sparkline(numbers: Sequence[int]) -> str:
    """Return numbers as a line of blocks.

    >>> sparkline([0, 1, 2, 4])
    '▁▂▄▇'
    """
    top = max(numbers, default=0) or 1
    return "".join(SPARKS[min(len(SPARKS) - 1, number * len(SPARKS) // (top + 1))] for number in numbers)


def count(number: int, thing: str) -> str:
    """Return a number with its noun.

    >>> count(1, "slot"), count(2, "slot")
    ('1 slot', '2 slots')
    """
    return f"{number:,} {thing if number == 1 else thing + 's'}"


def size(number: int) -> str:
    """Return a number of bytes as one reads it.

    >>> size(900), size(1536)
    ('900 bytes', '1,536 bytes (1.5 KiB)')
    """
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number:,} bytes ({number / 1024**power:.1f} {unit})"
    return count(number, "byte")


@contextmanager
def progress(label: str) -> Iterator[Show]:
    """Yield a function that shows progress on standard error, with rate and time left; on a terminal only."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def each(label: str, things: Iterable[T], total: int) -> Iterator[T]:
    """Yield things, and show how many of them are done with."""
    with progress(label) as show:
        for done, thing in enumerate(things, start=1):
            yield thing
            show(done, total)


def _rate() -> Any:
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class _Rate(ProgressColumn):
        """How much is done in a second."""

        def render(self, task: Task) -> Text:
            """Return the rate."""
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    return _Rate()


def watched(rows: Iterable[Any], show: Show, total: int | None) -> Iterator[Any]:
    """Yield rows, and show after each thousand how many went by."""
    number = 0
    for number, row in enumerate(rows, start=1):
        if number % 1000 == 0:
            show(number, total)
        yield row
    show(number, total if total is None else max(number, total))
