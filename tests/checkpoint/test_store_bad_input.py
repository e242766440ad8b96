"""Bad input gets one clear error each, and what lies on the disk stays as it is."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from checkpoint import (
    CheckpointError,
    CheckpointStore,
    CorruptStoreError,
    EpochTypeError,
    Run,
    StoreFailedError,
    StoreLockedError,
    UnknownCheckpointError,
    recognised,
)
from checkpoint.schema import FORMAT_VERSION
from checkpoint.upkeep import Upkeep
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import DIFFERENTIAL, Fault, quick_store, run_of, values_in


def make_store(path: Path) -> Path:
    with quick_store(path) as store:
        store.append(run_of(dict.fromkeys(range(200), "x" * 100)))
    # What a store leaves beside its file is not the subject here.
    for rest in path.parent.glob("*.lock"):
        rest.unlink()
    return path


def make_foreign(path: Path, *, journal: str = "delete") -> Path:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("CREATE TABLE person (name)")
    connection.commit()
    connection.close()
    return path


def make_newer(path: Path) -> Path:
    connection = sqlite3.connect(make_store(path))
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()
    return path


def make_cut(path: Path, size: int) -> Path:
    os.truncate(make_store(path), size)
    return path


def make_file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def make_link(path: Path, target: Path) -> Path:
    path.symlink_to(target)
    return path


def make_pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


BAD_PATHS: list[tuple[str, Callable[[Path], Path], type[Exception], str]] = [
    ("missing-folder", lambda f: f / "no" / "state.db", CheckpointError, "does not exist; create it"),
    ("folder", lambda f: f, CheckpointError, "is a folder: name a file"),
    ("file-as-folder", lambda f: make_file(f / "a", b"x") / "state.db", CheckpointError, "does not exist; create"),
    ("nul", lambda f: f / "a\0b", CheckpointError, "NUL"),
    ("no-text", lambda f: f / "\ud800.db", CheckpointError, "cannot be used as a path"),
    ("circle", lambda f: make_link(f / "loop", f / "loop"), CheckpointError, "cannot be used as a path|does not exist"),
    ("astray", lambda f: make_link(f / "link.db", f / "no" / "state.db"), CheckpointError, "does not exist"),
    ("too-long", lambda f: f / ("x" * 300), CheckpointError, "cannot be used as a path"),
    ("pipe", lambda f: make_pipe(f / "pipe"), CheckpointError, "not a regular file"),
    ("text", lambda f: make_file(f / "notes.txt", b"hello, world\n" * 99), CheckpointError, "name another file"),
    ("short-text", lambda f: make_file(f / "notes.txt", b"x"), CheckpointError, "name another file"),
    ("other-database", lambda f: make_foreign(f / "a.db"), CheckpointError, r"\['person'\].*name another file"),
    ("other-wal", lambda f: make_foreign(f / "a.db", journal="wal"), CheckpointError, "name another file"),
    ("newer", lambda f: make_newer(f / "a.db"), CheckpointError, "install a newer objectspace"),
    ("cut-header", lambda f: make_cut(f / "a.db", 50), CheckpointError, "cut short"),
    ("cut-page", lambda f: make_cut(f / "a.db", 1000), CorruptStoreError, "restore it from a backup"),
    ("cut-half", lambda f: make_cut(f / "a.db", 20_000), CorruptStoreError, "restore it from a backup"),
]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("make", "error", "message"), [row[1:] for row in BAD_PATHS], ids=[row[0] for row in BAD_PATHS]
)
def test_a_path_that_is_no_store_is_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], Path], error: type[Exception], message: str, read_only: bool
) -> None:
    path = make(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(error, match=message):
        CheckpointStore(path, read_only=read_only)
    after = snapshot(tmp_path)
    assert {name: after[name] for name in before} == before
    # SQLite reads through shared memory, and a reader may not take it away again.
    assert set(after) - set(before) <= {f"{path}.lock"} | ({f"{path}-shm", f"{path}-wal"} if read_only else set())


def test_a_path_of_bytes_and_a_name_without_room_for_a_lock_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"path is b'a\.db': expected text or a Path"):
        CheckpointStore(b"a.db")  # type: ignore[arg-type]
    for length in (248, 250, 251, 253):
        with pytest.raises(CheckpointError, match=r"\(File name too long\): give it a shorter name"):
            CheckpointStore(tmp_path / ("x" * length))
    assert snapshot(tmp_path) == {}
    CheckpointStore(tmp_path / ("x" * 247)).close()


def test_a_file_of_several_names_is_read_and_not_written(tmp_path: Path) -> None:
    path, backup = tmp_path / "state[1].db", tmp_path / "backup.db"
    with CheckpointStore(path) as store:
        store.append(run_of({"1": "1"}))
    os.link(path, backup)
    for name in (path, backup):
        with pytest.raises(CheckpointError, match=r"has 2 names \(hard links\).* make a copy with `checkpoint fork`"):
            CheckpointStore(name)
        with CheckpointStore(name, read_only=True) as store:
            assert len(store.checkpoints()) == 1
    # A fork makes its file under such a name, and may be killed before it takes that away.
    backup.rename(tmp_path / ".state[1].db.0123.tmp")
    other = make_file(tmp_path / ".state[1].db.4567.tmp", b"of another fork")
    with CheckpointStore(path) as store:
        store.append(run_of({"1": "2"}))
    assert sorted(tmp_path.glob(".state*")) == [other]


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal", ".owner"])
def test_a_store_and_the_log_of_another_one_do_not_share_a_name(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"state.db{end}"
    for make in (CheckpointStore, lambda name: CheckpointStore(":memory:").fork(name)):
        with pytest.raises(CheckpointError, match=r"lies beside a store 'state\.db' while it is open, and is removed"):
            make(path)
    path.touch()
    with pytest.raises(CheckpointError, match="name another file"):
        CheckpointStore(path)
    path.unlink()
    with CheckpointStore(tmp_path / "earlier.db") as store:
        store.append(run_of({"1": "1"}))
    (tmp_path / "earlier.db").rename(path)
    for read_only in (True, False) if end != "-shm" else ():  # That one cannot be looked into.
        with pytest.raises(CheckpointError, match=rf"state\.db{end} is a database.*: rename it first"):
            CheckpointStore(tmp_path / "state.db", read_only=read_only)
    with CheckpointStore(path) as store:
        assert len(store.checkpoints()) == 1, "a version that took the name has written it"


def test_the_index_of_a_log_is_refused_without_a_look_into_it(tmp_path: Path) -> None:
    """To open and close it would end the locks that SQLite has on it in this process."""
    with CheckpointStore(tmp_path / "state.db") as store:
        store.append(run_of({"1": "1"}))
        for read_only in (True, False):
            with pytest.raises(
                CheckpointError, match=r"state\.db-shm is what SQLite keeps beside state\.db: name that one"
            ):
                CheckpointStore(tmp_path / "state.db-shm", read_only=read_only)


def test_a_link_to_the_name_of_a_log_makes_no_store_there(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "state.db-wal")
    with pytest.raises(CheckpointError, match=r"lies beside a store 'state\.db' while it is open, and is removed"):
        CheckpointStore(tmp_path / "link.db")


def test_a_relative_path_in_a_folder_that_is_gone_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(CheckpointError, match=r"state\.db cannot be found: the folder .* give an absolute path"):
        CheckpointStore("state.db")


@pytest.mark.parametrize("place", [":memory:", "state.db"])
def test_a_sqlite_that_is_too_old_is_refused_before_there_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 32, 3))
    with pytest.raises(CheckpointError, match=r"expected 3\.33 or newer"):
        CheckpointStore(place)
    assert list(tmp_path.iterdir()) == []


def test_reading_what_is_not_there_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        CheckpointStore(tmp_path / "state.db", read_only=True)
    (tmp_path / "empty.db").touch()
    with pytest.raises(CheckpointError, match="nothing to read yet"):
        CheckpointStore(tmp_path / "empty.db", read_only=True)
    assert snapshot(tmp_path) == {str(tmp_path / "empty.db"): b""}


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (sqlite3.SQLITE_CANTOPEN, CheckpointError, "permissions"),
        (sqlite3.SQLITE_READONLY, CheckpointError, "permissions"),
        (sqlite3.SQLITE_READONLY_ROLLBACK, CheckpointError, "a writer was killed, .*: open it for writing once"),
        (sqlite3.SQLITE_IOERR, StoreFailedError, "see to the disk"),
        (sqlite3.SQLITE_BUSY, StoreLockedError, "try again"),
    ],
)
def test_a_file_that_cannot_be_opened_says_what_to_do(
    tmp_path: Path, inject: Callable[[Fault | None], None], code: int, error: type[Exception], message: str
) -> None:
    path = make_store(tmp_path / "state.db")
    before = path.read_bytes()
    inject(Fault(1, code))
    with pytest.raises(error, match=message):
        CheckpointStore(path)
    inject(None)
    assert path.read_bytes() == before
    with quick_store(path) as store:
        assert store.verify() == 1


def test_a_file_that_is_mounted_alone_is_read_and_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    path, listed = make_store(folder / "back\\slash.db"), tmp_path / "mountinfo"
    monkeypatch.setattr(recognised, "_MOUNTS", listed)
    monkeypatch.setattr(recognised, "_mount_of", lambda _: b"90")
    quick_store(path).close()  # It need not be Linux.
    at = str(path).replace("\\", "\\134").replace(" ", "\\040")
    listed.write_text(f"22 27 0:21 / /proc rw - proc proc rw\n90 27 8:1 /b.db {at} rw - ext4 /dev/x rw\n")
    with pytest.raises(CheckpointError, match=r"is mounted alone, .* mount the folder instead"):
        CheckpointStore(path)
    monkeypatch.setattr(recognised, "_mount_of", lambda _: b"91")  # What is mounted over its folder hides the other.
    quick_store(path).close()
    with quick_store(path, read_only=True) as store:
        assert store.verify()


def test_a_log_that_this_user_may_not_read_is_named(
    tmp_path: Path, inject: Callable[[Fault | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_store(tmp_path / "state.db")
    with quick_store(path):
        inject(Fault(1, sqlite3.SQLITE_CANTOPEN))
        monkeypatch.setattr(os, "access", lambda file, _: not str(file).endswith("-wal"))  # root may read everything
        with pytest.raises(CheckpointError, match=r"may not read .*state\.db-wal: see to its permissions"):
            CheckpointStore(path, read_only=True)
        inject(None)


def test_a_file_that_a_reader_of_another_user_left_is_named(
    tmp_path: Path, inject: Callable[[Fault | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_store(tmp_path / "state.db")
    CheckpointStore(path, read_only=True).close()
    assert path.with_name("state.db-shm").exists(), "readers leave what they have made"
    inject(Fault(1, sqlite3.SQLITE_READONLY))
    refused = path.with_name("state.db-shm"), os.W_OK
    monkeypatch.setattr(os, "access", lambda file, mode: (Path(file), mode) != refused)  # root may write everything
    with pytest.raises(CheckpointError, match=r"state\.db-shm, which another user has made .*: .* remove it, or have"):
        CheckpointStore(path)
    inject(None)


def test_a_path_that_is_too_long_for_sqlite_is_named_so(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["x" * 100] * 5)
    folder.mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"its path has \d{3} bytes, and SQLite takes 504: use a shorter one"):
        CheckpointStore(folder / "state.db")


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_named_so(
    tmp_path: Path, inject: Callable[[Fault | None], None], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path, opened = make_store(tmp_path / "state.db"), list[int]()

    def dup(*given: Any) -> int:
        if len(opened) == 2:
            refuse(code)
        opened.append(os.dup(1))
        return opened[-1]

    with quick_store(path):
        inject(Fault(1, sqlite3.SQLITE_CANTOPEN))
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", dup)
            with pytest.raises(CheckpointError, match=r"state\.db: .* has too many files open"):
                CheckpointStore(path, read_only=True)
        assert len(opened) == 2
        for each in opened:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(each)
        inject(None)


@pytest.mark.parametrize(("beside", "told"), [(["-wal"], True), (["-wal", "-shm"], False), ([], False)])
def test_a_log_alone_beside_which_nothing_may_be_written_is_to_be_copied(
    tmp_path: Path,
    inject: Callable[[Fault | None], None],
    monkeypatch: pytest.MonkeyPatch,
    beside: list[str],
    told: bool,
) -> None:
    path = make_store(tmp_path / "state.db")
    for end in beside:
        path.with_name(f"state.db{end}").write_bytes(b"x")
    inject(Fault(1, sqlite3.SQLITE_CANTOPEN))
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)  # root may write everywhere
    with pytest.raises(CheckpointError) as refused:
        CheckpointStore(path, read_only=True)
    assert ("state.db-wal has checkpoints that are not in the file yet" in str(refused.value)) == told
    inject(None)


def refuse(code: int) -> NoReturn:
    raise OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (
            errno.EACCES,
            "check the permissions of its folder, and of state.db.lock if .*, or open the store with read_only=True",
        ),
        (errno.ENOSPC, "has no room for another file: free some space, or remove small files"),
        (errno.EROFS, "takes no writes: mount it for writing, or open the store with read_only=True"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str
) -> None:
    monkeypatch.setattr("filelock.FileLock.acquire", lambda *_, **__: refuse(code))
    with pytest.raises(CheckpointError, match=rf"cannot be locked.*\({os.strerror(code)}\): .*{advice}"):
        CheckpointStore(tmp_path / "state.db")


def test_another_program_that_writes_is_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkpoint.session._BUSY_SECONDS", 0.01)
    with quick_store(tmp_path / "state.db") as store:
        other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match="another program"):
            store.append(run_of({1: "a"}))
        other.execute("ROLLBACK")
        other.close()
        assert store.append(run_of({1: "a"})).number == 1


@pytest.mark.parametrize("epoch", [5, 4, 0, -1])
def test_an_epoch_that_goes_backwards_is_refused(epoch: int) -> None:
    store = quick_store(":memory:")
    store.append(run_of({1: "a"}), 5)
    with pytest.raises(CheckpointError, match=f"epoch {epoch} is not after epoch 5"):
        store.append(run_of({1: "b"}), epoch)
    assert values_in(store.reader()) == {1: "a"}
    assert store.append(run_of({1: "b"})).epoch == 6


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**5000], ids=int.bit_length)
def test_what_is_longer_than_an_epoch_or_a_number_is_refused(number: int) -> None:
    store = quick_store(":memory:")
    for use in (
        lambda: store.writer(epoch=number),
        lambda: store.reader(epoch=number),
        lambda: store.reader(number),
        lambda: store.fork("nowhere", epoch=number),
    ):
        with pytest.raises(EpochTypeError, match=r"(epoch|number) is .*[0-9].*: expected an int of 64 bits"):
            use()


@pytest.mark.parametrize("epoch", ["7", 7.0, True, 2**63, b"7"])
def test_an_epoch_that_is_no_int_is_refused(epoch: Any) -> None:
    store = quick_store(":memory:")
    with pytest.raises(EpochTypeError, match="expected an int"):
        store.append(run_of({1: "a"}), epoch)
    with pytest.raises(EpochTypeError, match="expected an int"):
        store.writer(epoch=epoch)
    assert store.checkpoints() == []


def test_epochs_may_begin_below_zero() -> None:
    with PersistedObjectSpace.open(":memory:") as space:
        assert [space.checkpoint(epoch=epoch).epoch for epoch in (-5, -1, 7)] == [-5, -1, 7]
        with pytest.raises(UnknownCheckpointError, match="no epoch 3: it has epochs -5 to 7, 3 in all"):
            space.at(3)


def test_an_unknown_epoch_is_named_with_what_there_is() -> None:
    store = quick_store(":memory:")
    with pytest.raises(UnknownCheckpointError, match="no epoch 3: it has no checkpoint yet"):
        store.reader(epoch=3)
    store.append(Run(DIFFERENTIAL), 4)
    store.append(Run(DIFFERENTIAL), 9)
    with pytest.raises(UnknownCheckpointError, match="no epoch 5: it has epochs 4 to 9"):
        store.reader(epoch=5)
    with pytest.raises(UnknownCheckpointError, match="no checkpoint 3"):
        store.truncate_after(3)


@pytest.mark.parametrize("options", [{"durability": "none"}, {"history": 0}])
def test_bad_settings_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"durability|history"):
        CheckpointStore(tmp_path / "state.db", **options)
    assert snapshot(tmp_path) == {}


def test_a_closed_store_refuses_all_work(tmp_path: Path) -> None:
    store = quick_store(tmp_path / "state.db")
    store.append(run_of({1: "a"}))
    reader, writer = store.reader(), store.writer()
    writer.collect(run_of({1: "b"}), reader)
    store.close()
    store.close()
    before = (tmp_path / "state.db").read_bytes()
    for work in (
        store.checkpoints,
        store.reader,
        store.writer,
        store.verify,
        writer.commit,
        reader.index,
        lambda: store.append(run_of({})),
        lambda: reader.item(1, 1),
        lambda: list(reader.items(1)),
        lambda: list(reader.items_by_rank(1)),
        lambda: store.truncate_after(0),
        lambda: store.setting("next_object_id"),
        lambda: store.database,
    ):
        with pytest.raises(CheckpointError, match="closed: open the store again"):
            work()
    assert (tmp_path / "state.db").read_bytes() == before


WRONG: list[dict[str, list[Any]]] = [
    {"items": [(1, 0, "1")]},
    {"items": [(1, slot, "1", slot, None) for slot in range(40)]},
    {"items": [(1, 0, "1", None), (1, 1, "1")]},
    {"metadata": [(1, "length")]},
    {"metadata": [(1, "length", "1", None)]},
    {"index": [(1, "d", "List")]},
]

RETYPED: list[dict[str, list[Any]]] = [
    *({"items": [(1, 0, "1", rank)]} for rank in (2.0, True, "7")),
    *({"items": [(object_id, 0, "1", None)]} for object_id in (1.0, True, "1")),
    {"index": [(True, "d", "List", "{}")]},
    {"metadata": [("1", "length", "1")]},
]


@pytest.mark.parametrize(
    ("rows", "why"),
    [*((rows, "a row that cannot be stored") for rows in WRONG), *((rows, "expected an int") for rows in RETYPED)],
    ids=str,
)
def test_rows_of_another_width_or_that_would_be_stored_as_others_are_refused(
    rows: dict[str, list[Any]], why: str
) -> None:
    with quick_store(":memory:") as store:
        with pytest.raises(CheckpointError, match=why):
            store.append(Run(DIFFERENTIAL, **rows))
        store.append(run_of({1: "a"}))
        assert store.verify() == 1


def test_a_commit_that_fails_reads_what_is_kept_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with quick_store(":memory:") as store:
        load, loads = store._load, list[None]()
        monkeypatch.setattr(store, "_load", lambda: (loads.append(None), load()))
        with pytest.raises(CheckpointError, match="cannot be stored"):
            store.append(Run(DIFFERENTIAL, **RETYPED[0]))
        assert len(loads) == 1


@pytest.mark.parametrize("count", [1, 3, 5, 31, 33, 239, 241, 700])
def test_any_number_of_rows_is_stored_as_given(count: int) -> None:
    index = [(number, f"o{number}", "List" if number % 3 else None, None) for number in range(count)]
    metadata = [(number, "length", str(number) if number % 4 else None) for number in range(count)]
    items = [
        (1, number, f"{number}" if number % 5 else None, number if number > count // 2 else None)
        for number in range(count)
    ]
    with quick_store(":memory:") as store:
        store.append(Run(DIFFERENTIAL, index, metadata, items))
        found = [
            store.database.execute(f"SELECT * FROM state_{table}").fetchall() for table in ("index", "metadata", "item")
        ]
        assert [[row[1:] for row in rows] for rows in found] == [index, metadata, items]


@pytest.mark.parametrize("count", [0, 1e3, True, 2**70, "3"])
def test_a_history_that_is_no_number_of_checkpoints_is_refused_before_anything_is_made(
    tmp_path: Path, count: Any
) -> None:
    with pytest.raises(ValueError, match=re.escape(f"history is {count!r}: expected a whole number of checkpoints")):
        CheckpointStore(tmp_path / "state.db", history=count)
    assert snapshot(tmp_path) == {}
    with quick_store(":memory:") as store:
        with pytest.raises(ValueError, match="records is"):
            store.configure(records=count)
        with pytest.raises(TypeError, match="keep_for is 5: expected a timedelta"):
            store.configure(keep_for=5)  # type: ignore[arg-type]


def test_numbers_beyond_64_bits_are_those_of_no_checkpoint() -> None:
    with quick_store(":memory:") as store:
        store.append(run_of({1: 1}))
        assert (store.epoch_of(2**70), store.epoch_of(-(2**70)), store.prune(keep=2**70)) == (0, 0, 0)


def test_what_keeps_old_checkpoints_from_being_merged_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("no merging today")

    with quick_store(":memory:") as store:
        monkeypatch.setattr(Upkeep, "pay", fail)
        for number in range(100):
            store.append(run_of({number % 7: number}))
        assert "cannot be merged (TypeError('no merging today')), so reads become slower" in caplog.text
        assert len(store.checkpoints()) == 100
        monkeypatch.undo()
        store.append(run_of({1: 1}))
        assert store.verify() > 0
