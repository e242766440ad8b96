"""What no command should be given: it is one line on standard error and status 2, never a traceback."""

from __future__ import annotations

import json
import os
import pty
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, closing
from io import BytesIO, TextIOWrapper
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint import session
from checkpoint.tool.command import INTERRUPTED, ORDER, cli, main
from objectspace import PersistedObjectSpace
from tests.tool.conftest import Tool

NEEDED = {
    "show": ["counts"],
    "blame": ["counts"],
    "bisect": ["--", "true"],
    "revert": ["HEAD"],
    "apply": ["{new}/patch.jsonl"],
    "restore": ["{new}/restored.db"],
    "fork": ["{new}/forked.db"],
    "export": ["counts", "{new}/counts.csv"],
    "import": ["{new}/rows.jsonl", "rows"],
    "report": ["{new}/report.html"],
    "top": ["--count", "1"],
}
"""The least that a command takes beside the path."""


def arguments_of(command: str, path: object, folder: Path) -> list[str]:
    return [command, str(path), *(part.replace("{new}", str(folder)) for part in NEEDED.get(command, []))]


def require_one_line(found: Result) -> None:
    """Check that a command said what is wrong as it should."""
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert found.exit_code == 2, found.output
    assert "CHECKPOINT_DEBUG" not in found.stderr, found.stderr
    is_usage = found.stderr.startswith("Usage: ")
    assert is_usage or (found.stderr.startswith("error: ") and found.stderr.count("\n") == 1), found.stderr


@pytest.fixture
def folder(tmp_path: Path, store: Path) -> Path:
    """Return a folder with the files that some commands read."""
    new = tmp_path / "new"
    new.mkdir()
    CliRunner().invoke(cli, ["diff", str(store), "--patch", str(new / "patch.jsonl")])
    (new / "rows.jsonl").write_text('{"a":1}\n')
    return new


BAD = ["absent", "empty", "text", "other database", "folder", "cut", "bytes", "url", "protocol", "newer"]


def bad_path(kind: str, store: Path, tmp_path: Path) -> str:
    path = tmp_path / "bad.db"
    if kind == "text":
        path.write_text("a text, and no database\n" * 200)
    elif kind == "empty":
        path.touch()
    elif kind == "other database":
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE t (a)")
    elif kind == "folder":
        path.mkdir()
    elif kind == "cut":
        path.write_bytes(store.read_bytes()[:6000])
    elif kind == "bytes":
        path.write_bytes(store.read_bytes()[:2048] + Random(7).randbytes(20_000))
    elif kind == "newer":
        path.write_bytes(store.read_bytes())
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("PRAGMA user_version = 99")
    special = {"url": "http://127.0.0.1:9/state", "protocol": "nowhere://state"}
    return special.get(kind, str(path))


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("command", ORDER)
def test_bad_paths(tool: Tool, store: Path, tmp_path: Path, folder: Path, command: str, kind: str) -> None:
    path = bad_path(kind, store, tmp_path)
    if command == "import" and kind in ("absent", "empty"):
        assert tool(*arguments_of(command, path, folder)).exit_code == 0
        assert tool("show", path, "rows").output == 'rows = List of 1\n0 = {"a":1}\n'  # It makes a new store.
        return
    require_one_line(tool(*arguments_of(command, path, folder)))
    assert not (folder / "restored.db").exists()
    assert not (folder / "forked.db").exists()


def test_a_store_that_another_program_locks(tool: Tool, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN EXCLUSIVE")
        found = tool("log", store)
    require_one_line(found)
    assert "another program is writing" in found.stderr


OPTIONS = sorted(
    {option for command in cli.commands.values() for one in command.params for option in one.opts if option[:1] == "-"}
)

WORDS = st.one_of(
    st.sampled_from(OPTIONS),
    st.sampled_from(
        ["counts", "orders", "HEAD", "HEAD~99", "@70", "@", "0", "-1", "7", "counts@50", "counts[bob]", "nan"]
    ),
    st.sampled_from(
        ["1e400", "9" * 30, "①", "²", "orders@" + "9" * 30, "HEAD~" + "9" * 30, "", "{}", "--", "id=1", "="]
    ),
    st.text(max_size=8).filter(lambda text: "\0" not in text),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=st.sampled_from([name for name in ORDER if name != "top"]), words=st.lists(WORDS, max_size=5))
def test_any_arguments(tool: Tool, store: Path, tmp_path: Path, command: str, words: list[str]) -> None:
    # In a folder of its own: words may be names of files that are written.
    with TemporaryDirectory(dir=tmp_path) as folder, chdir(folder):
        found = tool(command, store, *words)
    assert found.exception is None or isinstance(found.exception, SystemExit), (words, found.exception)
    assert "CHECKPOINT_DEBUG" not in found.stderr, (words, found.stderr)
    assert found.exit_code in (0, 1, 2), (words, found.output)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.integers(0, 22_000),
    data=st.binary(min_size=1, max_size=64),
    command=st.sampled_from(
        ["log", "ls", "show", "diff", "blame", "verify", "doctor", "report", "export", "top", "repair"]
    ),
)
def test_damaged_bytes(tool: Tool, store: Path, tmp_path: Path, place: int, data: bytes, command: str) -> None:
    with TemporaryDirectory(dir=tmp_path) as folder, chdir(folder):
        content = bytearray(store.read_bytes())
        content[place : place + len(data)] = data
        Path("damaged.db").write_bytes(content)
        found = tool(*arguments_of(command, "damaged.db", Path()), *(["--dry-run"] if command == "repair" else []))
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert "CHECKPOINT_DEBUG" not in found.stderr, found.stderr
    assert found.exit_code in (0, 1, 2)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["lgo", "x"], "Did you mean 'log'?"),
        (["log", "{}", "--limt", "3"], "--limit"),
        (["show", "{}", "ordres"], "did you mean 'orders'?"),
        (["blame", "{}", "cuonts"], "did you mean 'counts'?"),
        (["diff", "{}", "1", "2", "evnets"], "did you mean 'events'?"),
        (["restore", "{}", "new.db", "--object", "cuonts"], "did you mean 'counts'?"),
        (["export", "{}", "cuonts", "new.csv"], "did you mean 'counts'?"),
        (["show", "{}", "orders", "--where", "itme=1"], "did you mean 'item'?"),
        (["log", "{}x"], "did you mean"),
        (["ls", "{}", "--shard", "1"], "is not a space of shards"),
        (["show", "{}", "orders", "--from", "1"], "whose rows --where chooses"),
        (["bisect", "{}", "--", "no-such-command"], "cannot be run"),
        (["bisect", "{}", "--", "sh", "-c", "no-such-command"], "was not run"),
        (["report", "{}", "no/such/folder.html"], "does not exist"),
        (["restore", "{}", "s3://bucket/x"], "is a URL"),
        (["diff", "{}", "counts"], "'counts' is an object: use checkpoint diff"),
        (["diff", "{}", "--patch", "no/such/folder.jsonl"], "does not exist"),
        (["export", "{}", "counts", "no/such/folder.csv"], "no/such/folder.csv cannot be written"),
        (["apply", "{}", "no-such-patch"], "no-such-patch: no such file or directory"),
    ],
)
def test_what_is_wrong_is_said(tool: Tool, store: Path, words: list[str], hint: str) -> None:
    found = tool(*(word.replace("{}", str(store)) for word in words))
    assert found.exit_code == 2
    assert hint in found.stderr


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["diff", "--", "{}", "-x y"], "diff {} HEAD~1 HEAD -- '-x y'"),
        (["diff", "{}", ""], "diff {} HEAD~1 HEAD ''"),
        (["blame", "--", "{}", "-x y[k]"], "show {} -- '-x y'"),
    ],
)
def test_a_command_that_is_advised_can_be_typed(
    tool: Tool, tmp_path: Path, words: list[str], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with PersistedObjectSpace.open("s.db") as space:
        for name in ("-x y", ""):
            space.create_value(name, 1)
        space.checkpoint()
        for name in ("-x y", ""):
            space.get_value(name).value = 2
        space.checkpoint()
    found = tool(*(word.replace("{}", "s.db") for word in words))
    advised = advice.replace("{}", "s.db")
    assert (found.exit_code, f"checkpoint {advised}" in found.stderr) == (2, True), found.stderr
    assert "2" in tool(*shlex.split(advised)).stdout


def test_a_link_to_nothing_is_told_from_a_path_that_is_wrong(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("gone.db")
    found = tool("log", tmp_path / "link.db")
    assert "link.db' is a link to 'gone.db', which does not exist" in found.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["show", "{}", "events", "--json", "-n"], 7),
        (["blame", "{}", "events", "--json", "-n"], 7),
        (["diff", "{}", "6", "7", "events", "--json", "-n"], 2),
        (["show", "{}", "events", "--json", "--to"], 7),
        (["show", "{}", "events", "--json", "--from"], 0),
    ],
)
@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 10**30])
def test_more_than_can_be_counted_is_all(tool: Tool, store: Path, words: list[str], expected: int, number: int) -> None:
    found = tool(*(word.replace("{}", str(store)) for word in words), number)
    assert (found.exit_code, found.stderr) == (int(words[0] == "diff"), "")
    assert len(found.stdout.splitlines()) == expected


@pytest.mark.parametrize("words", [["report", "{}", "{}"], ["diff", "{}", "--patch", "{}"]])
def test_nothing_is_written_over_another_file(tool: Tool, store: Path, words: list[str]) -> None:
    before = store.read_bytes()
    require_one_line(tool(*(word.replace("{}", str(store)) for word in words)))
    assert store.read_bytes() == before
    for _ in range(2):  # what a command wrote it may write again
        assert tool(*words[:1], store, *words[2:-1], store.with_name("new")).exit_code in (0, 1)


@pytest.mark.parametrize("command", ORDER)
def test_help_has_examples(tool: Tool, command: str) -> None:
    text = tool(command, "--help").output
    examples = text.split("Examples:")[1]
    assert f"checkpoint {command} " in examples
    assert "Traceback" not in text


Entry = Callable[..., tuple[int, str, str]]


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Entry:
    """Return what enters the command as the installed one does: it returns the status, and what the streams got."""

    def run(*words: object, **variables: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["checkpoint", *map(str, words)])
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        status = end.value.code
        assert isinstance(status, int)
        return status, *capfd.readouterr()

    return run


def test_the_installed_command_prints_json(store: Path) -> None:
    installed = Path(sys.executable).with_name("checkpoint")
    found = subprocess.run([installed, "log", store, "--json"], capture_output=True, text=True, check=True)
    assert [json.loads(line)["number"] for line in found.stdout.splitlines()] == list(range(7, 0, -1))


@pytest.mark.parametrize("command", ORDER)
def test_every_command_prints_json(entry: Entry, store: Path, folder: Path, command: str) -> None:
    words = arguments_of(command, store, folder)
    if command == "bisect":
        words = [command, str(store), "--input", "counts", "--", "grep", "-q", "alice"]
    words[2:2] = ["--json"]
    if command == "apply":
        CliRunner().invoke(cli, ["revert", str(store), "HEAD"])
    status, stdout, stderr = entry(*words)
    if command == "gc":
        assert (status, stdout) == (2, "")  # a store has no files to collect
        return
    assert status in (0, 1), stderr
    assert stdout
    for line in stdout.splitlines():
        assert isinstance(json.loads(line), dict)


# A command that returns, one that ends with a status, and what comes before any command.
@pytest.mark.parametrize("words", [["log", "{}"], ["diff", "{}"], ["--help"]])
def test_a_reader_that_went_away(store: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "checkpoint", *(word.replace("{}", str(store)) for word in words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""


@pytest.mark.parametrize(
    ("command", "status", "closed"),
    [("log", 0, ">&-"), ("verify", 0, "2>&-"), ("diff", 1, "<&- >&- 2>&-"), ("compact", 0, "<&- >&- 2>&-")],
)
def test_streams_that_are_closed(store: Path, command: str, status: int, closed: str) -> None:
    line = f'exec "$0" -m checkpoint {command} "$1" {closed}'
    done = subprocess.run(["sh", "-c", line, sys.executable, str(store)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (status, b"")


def test_a_path_need_not_be_text(store: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(store.parent) + b"/\xff.db"))
    store.rename(path)
    for words in (["fork", path, f"{path}.fork"], ["log", f"{path}.fork", "--graph"], ["report", path, f"{path}.html"]):
        command = [sys.executable, "-m", "checkpoint", *map(str, words)]
        environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\xff.db" in done.stdout or words[0] == "log"


@pytest.mark.parametrize("encoding", ["latin-1", "cp437", "ascii", "utf-8"])
def test_what_the_encoding_of_the_output_does_not_have_is_an_escape(
    entry: Entry, tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.db"))
    with PersistedObjectSpace.open(path) as space:
        space.create_value("na\u00efve \u2014 \U0001f600", 1)
        space.checkpoint()
    outputs = []
    for words in (["ls", path], ["ls", path, "--json"], ["fork", path, f"{path}.fork"]):
        output = BytesIO()
        monkeypatch.setattr(sys, "stdout", TextIOWrapper(output, encoding=encoding))
        assert entry(*words) == (0, "", "")
        outputs.append(output.getvalue())
    name = "na\u00efve \u2014 \U0001f600"
    shown = name if encoding == "utf-8" else "na\u00efve \\u2014 \\ud83d\\ude00"
    if encoding == "ascii":
        shown = shown.replace("\u00ef", "\\u00ef")
    assert shown in outputs[0].decode(encoding)
    assert json.loads(outputs[1].decode(encoding))["name"] == name
    assert b"\xff.db" in outputs[2]


def test_an_error_is_told_in_the_encoding_of_its_output(store: Path) -> None:
    command = [sys.executable, "-m", "checkpoint", "show", str(store), "\u2014"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, b"there is no object '\\u2014'" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(("variables", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_has_colours_unless_they_are_not_wanted(
    store: Path, variables: dict[str, str], has_colours: bool
) -> None:
    reader, writer = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "checkpoint", "diff", str(store)],
        env={**os.environ, "TERM": "xterm", **variables},
        stdout=writer,
        check=False,
    )
    os.close(writer)
    output = os.read(reader, 100_000)
    os.close(reader)
    assert b"counts (Dictionary)" in output
    assert (b"\x1b[" in output) is has_colours


@pytest.mark.parametrize("buffering", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [["log", "{store}"], ["--help"], ["diff", "{store}"]])
def test_a_full_disk_is_one_line(store: Path, arguments: list[str], buffering: dict[str, str]) -> None:
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "checkpoint", *(one.format(store=store) for one in arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=surroundings | buffering,
        )
    assert (done.returncode, done.stderr) == (2, "error: no space left on device\n")


def test_a_pipe_has_no_colours(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "checkpoint", "diff", str(store)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "\x1b" in done.stdout, done.stderr) == (1, False, "")


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [
        ("bash", "checkpoint ve", "plain,verify"),
        ("bash", "checkpoint show {} or", "plain,orders"),
        ("bash", "checkpoint diff {} --st", "plain,--stat"),
        ("zsh", "checkpoint show {} or", "orders"),
        ("fish", "checkpoint show {} or", "plain,orders"),
    ],
)
def test_completion(entry: Entry, store: Path, shell: str, words: str, expected: str) -> None:
    line = words.replace("{}", str(store))
    last = line.split()[-1] if shell == "fish" else str(line.count(" "))
    done = entry(_CHECKPOINT_COMPLETE=f"{shell}_complete", COMP_WORDS=line, COMP_CWORD=last)
    assert expected in done[1].splitlines()


def test_completion_in_a_real_bash(store: Path, tmp_path: Path) -> None:
    script = tmp_path / "checkpoint"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m checkpoint "$@"\n')
    script.chmod(0o755)
    program = (
        'eval "$(_CHECKPOINT_COMPLETE=bash_source checkpoint)"; complete -p checkpoint;'
        f" COMP_WORDS=(checkpoint show {store} or); COMP_CWORD=3; _checkpoint_completion checkpoint;"
        ' echo "found ${COMPREPLY[*]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", program], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "found orders", done.stderr
    assert "_checkpoint_completion" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_of_completion(entry: Entry, shell: str) -> None:
    status, script, _ = entry(_CHECKPOINT_COMPLETE=f"{shell}_source")
    assert status == 0
    assert f"_CHECKPOINT_COMPLETE={shell}_complete" in script


def test_each_command_is_a_click_command() -> None:
    assert all(isinstance(cli.commands[name], click.Command) for name in ORDER)
    assert set(ORDER) == set(cli.commands)


@pytest.mark.parametrize(
    "arguments",
    [("top", "--interval", "nan", "--count", "1"), ("gc", "--grace", "nan"), ("prune", "--keep", str(1 << 64))],
)
def test_numbers_that_are_none_or_too_large_are_refused_at_once(
    tool: Tool, store: Path, arguments: tuple[str, ...]
) -> None:
    command, option, *rest = arguments
    found = tool(command, store, option, *rest)
    assert (found.exit_code, found.stdout) == (2, "")
    assert f"Invalid value for '{option}'" in found.stderr


def test_an_interruption_while_the_commands_are_loaded_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("checkpoint.tool.command.load", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().err) == (INTERRUPTED, "interrupted\n")
