"""Runs the behaviour cases of relational tables against ours, and says how theirs map to them.

Their orders take NULL for the greatest value, ours say where it goes. Their ``commit(f)`` seals the epoch that is
current and makes ``f`` current; ours seals the epoch that it is given. Their tables find contradictions with storage
at the commit, ours at the call: such a call must fail, and the commit then has nothing to complain about. A call that
fails though no commit is expected to is an error.

The cases of our own say in their file what the fields of the kinds mean of which the others have no case.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.relational import (
    AggregateCall,
    Chunk,
    Column,
    EpochError,
    InconsistentOperationError,
    MemTable,
    PlanNode,
    StateTable,
    StorageTable,
    TableSchema,
    VnodeBitmap,
    VnodeNotOwnedError,
    aggregation_tables,
    assign_vnodes,
    cache_is_stale,
    compacted,
    deduplication_tables,
    join_tables,
    next_key,
    plan_tables,
    top_n_tables,
)
from objectspace.relational.keys import KeyEncoder, KeyRange, Order, key_range
from objectspace.relational.types import parse_type
from objectspace.relational.values import checker
from objectspace.relational.watermarks import WatermarkIndex, visible_range
from tests.fields import only

FOLDER = Path(__file__).parents[1] / "cases"
KINDS, CASES = itemgetter("kinds", "cases")(json.loads((FOLDER / "relational.json").read_text()))
OWN = json.loads((FOLDER / "relational_own.json").read_text())["cases"]

ERRORS = {
    "inconsistent_operation": InconsistentOperationError,
    "vnode_not_owned": VnodeNotOwnedError,
    "bad_epoch": EpochError,
}

FIELDS = {
    "key_order": "type order ascending_classes",
    "key_bytes": "types orders row hex",
    "key_row_order": "types orders ascending_rows",
    "key_prefix": "types orders prefix prefix_hex end_exclusive_hex inside outside",
    "next_key": "key_hex next_hex",
    "value_evolution": "written read",
    "memtable": "consistency sanity_check ops expect_buffer expect_error",
    "state_table": "table steps",
    "storage_table": "table steps",
    "storage_table_projection": "table output_columns writes gets scan",
    "storage_table_scan": "table writes prefix lower upper expect sql_null_semantics",
    "change_log": "table writes_by_epoch reads",
    "ordered_state": "table steps",
    "cache_stale": "previous current must_clear",
    "vnode_assignment": "vnode_count sequence",
    "watermark_index": "writes reads",
    "watermark_range": "types orders watermark lower upper inside outside",
    "chunk_compaction": "key chunks output expect expect_error",
    "noop_elimination": "chunk expect",
    "table_ids": "plan expect",
    "table_layout": "operator expect_tables",
    "executor": "executor spec compare steps",
    "agg_state": "spec steps",
    "distinct_dedup": "spec steps",
}
"""What a case of each kind has besides what every case has."""

TABLE_FIELDS = (
    "columns column_ids pk value_indices consistency vnode_col vnode_count workers clean_watermark_col log_store"
)

SAME_BYTES = ("bool", "int16", "int32", "int64", "float32", "float64")
"""The types whose keys have the same bytes here as theirs have."""

LEVELS = {"inconsistent": "blind", "consistent_old_value": "strict"}


def check_fields(case: dict[str, Any]) -> None:
    """Assert that a case has no field that nothing reads."""
    only(case, "id", "kind", "title", "source", "note", "skip_model", *FIELDS[case["kind"]].split())


# Values ---------------------------------------------------------------------------------------------------------------


def order_of(text: str) -> str:
    return {"asc": "asc nulls last", "desc": "desc nulls first"}.get(text, text)


def type_of(kind: Any) -> Any:
    """Return our type for one of the cases: a decimal has the 77 digits of an int256."""
    return parse_type(re.sub(r"\bint256\b", "decimal", kind)) if isinstance(kind, str) else kind


def value_of(kind: Any, given: Any) -> Any:
    """Return a value of the cases as Python has it."""
    kind = type_of(kind)
    if given is None:
        return None
    if kind.kind == "list":
        return [value_of(kind.element, item) for item in given]
    if kind.kind == "struct":
        return {name: value_of(field, item) for (name, field), item in zip(kind.fields, given, strict=True)}
    return READERS.get(kind.kind, lambda plain: plain)(given)


def values_of(kinds: list[str], row: Any) -> list[Any] | None:
    """Return a row of the cases as Python has it; there may be none."""
    return None if row is None else [value_of(kind, item) for kind, item in zip(kinds, row, strict=True)]


READERS: dict[str, Any] = {
    "float32": lambda given: float(given.lower()) if isinstance(given, str) else given,
    "float64": lambda given: float(given.lower()) if isinstance(given, str) else given,
    "decimal": Decimal,
    "binary": lambda given: bytes.fromhex(given["hex"]),
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
}


def encoder_of(kinds: list[str], orders: list[str]) -> KeyEncoder:
    return KeyEncoder([type_of(kind) for kind in kinds], [Order.parse(order_of(order)) for order in orders])


def encode(kinds: list[str], orders: list[str], row: list[Any]) -> bytes:
    values = [value_of(kind, item) for kind, item in zip(kinds, row)]
    checked = [None if v is None else checker(type_of(kind))(v) for kind, v in zip(kinds, values)]
    return encoder_of(kinds, orders).encode(checked)


# Keys -----------------------------------------------------------------------------------------------------------------


def run_key_order(case: dict[str, Any]) -> None:
    keys = [
        {encode([case["type"]], [case["order"]], [value]) for value in equal} for equal in case["ascending_classes"]
    ]
    assert all(len(equal) == 1 for equal in keys), "equal values have different keys"
    found = [key for equal in keys for key in equal]
    assert found == sorted(set(found))


def run_key_row_order(case: dict[str, Any]) -> None:
    keys = [encode(case["types"], case["orders"], row) for row in case["ascending_rows"]]
    assert keys == sorted(set(keys))


def run_key_prefix(case: dict[str, Any]) -> None:
    start = encode(case["types"], case["orders"], case["prefix"])
    if "prefix_hex" in case:
        check_prefix_bytes(case, start)
    check_sides(case, [(start, next_key(start))])


def check_prefix_bytes(case: dict[str, Any], start: bytes) -> None:
    """Check the bytes of a prefix where ours are theirs; what is after them follows from the bytes in any case."""
    kinds = [type_of(kind).kind for kind, value in zip(case["types"], case["prefix"]) if value is not None]
    if set(kinds) <= set(SAME_BYTES):
        assert start.hex() == case["prefix_hex"], f"the prefix is {start.hex()}"
    assert next_key(bytes.fromhex(case["prefix_hex"])).hex() == case["end_exclusive_hex"]


def check_sides(case: dict[str, Any], ranges: list[KeyRange]) -> None:
    """Check that the rows inside have keys in one of some ranges, and those outside in none."""
    for side in ("inside", "outside"):
        for row in case[side]:
            key = encode(case["types"], case["orders"], row)
            found = any(start <= key and (key < end or not end) for start, end in ranges)
            assert found == (side == "inside"), f"{row} is {side}: {key.hex()} and {ranges}"


def run_key_bytes(case: dict[str, Any]) -> None:
    """Ours are the bytes of our own layout, which is not theirs."""
    assert encode(case["types"], case["orders"], case["row"]).hex() == case["hex"]


def run_next_key(case: dict[str, Any]) -> None:
    assert next_key(bytes.fromhex(case["key_hex"])).hex() == case["next_hex"]


# The MemTable ---------------------------------------------------------------------------------------------------------


def run_memtable(case: dict[str, Any]) -> None:
    level = LEVELS[case["consistency"]]
    buffer = MemTable("trusted" if level == "strict" and not case.get("sanity_check", True) else level)
    for place, (verb, *arguments) in enumerate(case["ops"]):
        assert verb in ("insert", "delete", "update"), verb
        try:
            getattr(buffer, verb)(*arguments)
        except InconsistentOperationError:
            assert case["expect_error"] == {"at": place, "error": "inconsistent_operation"}
            return
    assert "expect_error" not in case
    shown = {
        key: [kind.value, *(row for row in (old, new) if row is not None)] for key, (kind, old, new) in buffer.items()
    }
    assert shown == case["expect_buffer"]


# Tables ---------------------------------------------------------------------------------------------------------------


class Script:
    """The steps of one case over one table, by one or more instances that own vnodes."""

    def __init__(self, table: dict[str, Any]) -> None:
        only(table, *TABLE_FIELDS.split())
        names, kinds = zip(*table["columns"], strict=True)
        place = table.get("vnode_col")
        watermark = table.get("clean_watermark_col")
        self.kinds = kinds
        self.schema = TableSchema(
            columns_with_ids(table["columns"], table.get("column_ids")),
            primary_key=[(names[column], order_of(order)) for column, order in table["pk"]],
            vnode_column=None if place is None else names[place],
            watermark_column=None if watermark is None else names[watermark],
        )
        self.key_kinds = [kinds[column] for column, _ in table["pk"]]
        self.values: list[int] = table.get("value_indices", list(range(len(names))))
        self.level = LEVELS[table.get("consistency", "consistent_old_value")]
        self.workers: dict[str, Any] = table.get("workers", {"main": None})
        self.store = CheckpointStore(":memory:", history=1000)
        self.space = PersistedObjectSpace(self.store)
        self.tables: dict[str, StateTable] = {}
        self.refused = self.is_owed = False

    def run(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            arguments = {name: value for name, value in step.items() if name not in ("do", "on", "expect_error")}
            self.table = self.tables.get(step.get("on", "main"))
            if "expect_error" in step:
                self.must_fail(step, arguments)
            else:
                self.attempt(step, arguments)
        assert not self.is_owed, "an operation was refused, and no commit was expected to fail"

    def attempt(self, step: dict[str, Any], arguments: dict[str, Any]) -> None:
        assert not self.is_owed or step["do"] != "commit", f"{step}: an operation of the epoch was refused"
        try:
            self.do(step, arguments)
        except InconsistentOperationError:
            self.refused = self.is_owed = True

    def must_fail(self, step: dict[str, Any], arguments: dict[str, Any]) -> None:
        if step["do"] in ("commit", "flush") and step["expect_error"] == "inconsistent_operation":
            assert self.is_owed, "no operation of the epoch was refused"
            self.is_owed = False
            return
        try:
            self.do(step, arguments)
        except ERRORS[step["expect_error"]]:
            return
        raise AssertionError(f"{step} did not fail")

    def do(self, step: dict[str, Any], arguments: dict[str, Any]) -> None:
        expected = arguments.pop("expect", None)
        if step["do"] in ("init_epoch", "reopen"):
            arguments["on"] = step.get("on", "main")
        found = getattr(self, f"do_{step['do']}")(**arguments)
        if "expect" in step and not self.refused:
            assert found == self.expected(step, expected), f"{step} gave {found}"

    def expected(self, step: dict[str, Any], rows: Any) -> Any:
        if step["do"] == "exists" or rows is None:
            return rows
        return self.read(rows, self.values) if step["do"].endswith("get") else self.read_all(rows, self.values)

    def read(self, row: Any, places: list[int] | None = None) -> list[Any] | None:
        """Return the columns at some places, or all, of a row of the cases as Python has them."""
        return values_of([self.kinds[place] for place in (range(len(self.kinds)) if places is None else places)], row)

    def read_all(self, rows: Any, places: list[int] | None = None) -> list[Any]:
        return [self.read(row, places) for row in rows]

    def row(self, given: list[Any]) -> tuple[Any, ...]:
        return tuple(value_of(kind, item) for kind, item in zip(self.kinds, given, strict=True))

    def key(self, given: list[Any], skip: int = 0) -> tuple[Any, ...]:
        return tuple(value_of(kind, item) for kind, item in zip(self.key_kinds[skip:], given))

    def shown(self, row: Any) -> Any:
        return None if row is None else [row[place] for place in self.values]

    def bounds(self, lower: Any, upper: Any, skip: int = 0) -> dict[str, Any]:
        sides = [bound if bound and bound[0] != "unbounded" else None for bound in (lower, upper)]
        low, high = (None if side is None else self.key(side[1], skip) for side in sides)
        return {"lower": low, "upper": high, "inclusive": tuple(not side or side[0] == "included" for side in sides)}

    def open(self, name: str) -> StateTable:
        vnodes = self.workers[name]
        self.tables[name] = StateTable(self.space, "t", self.schema, self.level, vnodes=vnodes)
        return self.tables[name]

    def do_init_epoch(self, epoch: int, on: str) -> None:
        if epoch > 1 and not self.store.checkpoints():
            self.space.checkpoint(epoch=epoch - 1)
        self.open(on)

    def do_reopen(self, on: str, epoch: int | None = None) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.refused = self.is_owed = False
        newest = max((one.epoch for one in self.store.checkpoints()), default=0)
        if epoch is not None and epoch - 1 < newest:
            self.space.rollback(epoch=epoch - 1)
        elif epoch is not None and epoch - 1 > newest:
            self.space.checkpoint(epoch=epoch - 1)
        for name in list(self.tables):
            self.open(name)

    def do_insert(self, row: Any) -> None:
        self.table.insert_row(self.row(row))

    def do_delete(self, row: Any) -> None:
        self.table.delete_row(self.row(row))

    def do_update(self, old: Any, new: Any) -> None:
        self.table.update_row(self.row(old), self.row(new))

    def do_write_chunk(self, rows: Any) -> None:
        self.table.write_chunk([(op, self.row(row), *rest) for op, row, *rest in rows])

    def do_flush(self) -> None:
        """Nothing is spilled here."""

    def do_commit(self, epoch: int) -> None:
        self.table.commit(epoch - 1)
        if all(table.epoch == epoch - 1 for table in self.tables.values()):
            self.space.checkpoint(epoch=epoch - 1)

    def do_update_watermark(self, value: Any) -> None:
        self.table.update_watermark(value_of(self.schema.column(self.schema.watermark_column).type, value))

    def do_rescale(self, vnodes: list[int]) -> None:
        self.table.update_vnodes(vnodes)

    def do_get(self, pk: Any) -> Any:
        return self.shown(self.table.get_row(self.key(pk)))

    def do_exists(self, pk: Any) -> bool:
        return self.table.exists(self.key(pk))

    def do_scan_prefix(self, prefix: Any, lower: Any = None, upper: Any = None, reverse: bool = False) -> Any:
        bounds = self.bounds(lower, upper, len(prefix))
        return list(map(self.shown, self.table.scan(self.key(prefix), **bounds, reverse=reverse)))

    def do_scan_range(self, lower: Any = None, upper: Any = None, vnode: Any = None, reverse: bool = False) -> Any:
        own = vnode if self.schema.vnode_column else None
        return list(map(self.shown, self.table.scan(**self.bounds(lower, upper), reverse=reverse, vnode=own)))

    def do_snapshot_get(self, pk: Any, epoch: int | None = None) -> Any:
        return self.shown(StorageTable(self.store, "t", epoch=epoch).get_row(self.key(pk)))

    def do_snapshot_scan(self, epoch: int | None = None) -> Any:
        return list(map(self.shown, StorageTable(self.store, "t", epoch=epoch).scan()))

    def do_range(self, after: Any = None, offset: int = 0, limit: int = sys.maxsize) -> Any:
        lower = None if after is None else self.key(after)
        rows = self.table.scan(lower=lower, inclusive=(False, True))
        return list(map(self.shown, islice(islice(rows, offset, None), limit)))


def run_state_table(case: dict[str, Any]) -> None:
    Script(case["table"]).run(case["steps"])


def run_ordered_state(case: dict[str, Any]) -> None:
    only(case["table"], "types", "pk")
    kinds = case["table"]["types"]
    columns = [[f"c{place}", kind] for place, kind in enumerate(kinds)]
    script = Script({"columns": columns, "pk": case["table"]["pk"]})
    script.run([{"do": "init_epoch", "epoch": 1}, *case["steps"]])


def committed(case: dict[str, Any]) -> Script:
    script = Script(case["table"])
    script.run([{"do": "init_epoch", "epoch": 1}, *case["writes"], {"do": "commit", "epoch": 2}])
    return script


def run_storage_table_projection(case: dict[str, Any]) -> None:
    script = committed(case)
    names = [script.schema.names[place] for place in case["output_columns"]]
    table = StorageTable(script.store, "t", columns=names, epoch=1)
    for key, row in case.get("gets", []):
        found = table.get_row(script.key(key))
        assert (None if found is None else list(found)) == script.read(row, case["output_columns"])
    if "scan" in case:
        assert list(map(list, table.scan())) == script.read_all(case["scan"], case["output_columns"])


def run_storage_table_scan(case: dict[str, Any]) -> None:
    script = committed(case)
    bounds = script.bounds(case.get("lower"), case.get("upper"), len(case["prefix"]))
    table = StorageTable(script.store, "t", epoch=1) if case.get("sql_null_semantics", True) else script.table
    assert list(map(list, table.scan(script.key(case["prefix"]), **bounds))) == script.read_all(case["expect"])


def run_change_log(case: dict[str, Any]) -> None:
    script = Script(case["table"])
    script.run([{"do": "init_epoch", "epoch": 1}])
    for epoch, writes in case["writes_by_epoch"].items():
        script.run([*writes, {"do": "commit", "epoch": int(epoch) + 1}])
    table = StorageTable(script.store, "t")
    for read in case["reads"]:
        only(read, "from_epoch", "to_epoch", "expect")
        found = table.changes(read["from_epoch"], read["to_epoch"])
        shown = [[kind.value, *(list(row) for row in (old, new) if row is not None)] for kind, old, new in found]
        assert shown == [[kind, *script.read_all(rows)] for kind, *rows in read["expect"]]


def columns_with_ids(columns: list[list[str]], ids: list[int] | None = None) -> list[Column]:
    numbers = range(1, len(columns) + 1) if ids is None else ids
    pairs = zip(columns, numbers, strict=True)
    return [Column(name, type_of(kind), nullable=True, id=number) for (name, kind), number in pairs]


def run_value_evolution(case: dict[str, Any]) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    written, read = case["written"], case["read"]
    for side in (written, read):
        only(side, "columns", "column_ids", "pk", "row", "kinds")
        side["kinds"] = [kind for _, kind in side["columns"]]
    schemas = [
        TableSchema(columns_with_ids(side["columns"], side["column_ids"]), side["pk"]) for side in (written, read)
    ]
    StateTable(space, "t", schemas[0]).insert_row(tuple(values_of(written["kinds"], written["row"]) or ()))
    space.checkpoint(epoch=1)
    (row,) = StateTable(PersistedObjectSpace(store), "t", schemas[1], evolve=True).scan()
    assert list(row) == values_of(read["kinds"], read["row"])


# Vnodes, watermarks, chunks -------------------------------------------------------------------------------------------


def run_cache_stale(case: dict[str, Any]) -> None:
    assert cache_is_stale(VnodeBitmap(case["previous"]), VnodeBitmap(case["current"])) == case["must_clear"]


def run_watermark_index(case: dict[str, Any]) -> None:
    index = WatermarkIndex()
    for epoch, vnodes, watermark in case["writes"]:
        index.write(epoch, VnodeBitmap(vnodes), watermark)
    for vnode, epoch, watermark in case["reads"]:
        assert index.read(vnode, epoch) == watermark, (vnode, epoch)


def run_watermark_range(case: dict[str, Any]) -> None:
    encoder = encoder_of(case["types"], case["orders"])
    kind, sides = type_of(case["types"][0]), [case["lower"], case["upper"]]
    low, high = (
        None if side[0] == "unbounded" else [value_of(*pair) for pair in zip(case["types"], side[1])] for side in sides
    )
    inclusive = (sides[0][0] != "excluded", sides[1][0] != "excluded")
    found = key_range(encoder.encode, (), low, high, inclusive)
    order, mark = Order.parse(order_of(case["orders"][0])), value_of(kind, case["watermark"])
    check_sides(case, visible_range(found, kind, order, mark))


def run_vnode_assignment(case: dict[str, Any]) -> None:
    owned: list[VnodeBitmap] = []
    for entry in case["sequence"]:
        only(entry, "workers", "sizes", "max_moved")
        before = {vnode: worker for worker, bitmap in enumerate(owned) for vnode in bitmap}
        owned = assign_vnodes(entry["workers"], owned, case["vnode_count"])
        after = {vnode: worker for worker, bitmap in enumerate(owned) for vnode in bitmap}
        assert len(after) == case["vnode_count"]
        assert sorted(map(len, owned), reverse=True) == entry.get("sizes", sorted(map(len, owned), reverse=True))
        moved = sum(before.get(vnode, worker) != worker for vnode, worker in after.items())
        assert moved <= entry.get("max_moved", moved)


def run_chunk_compaction(case: dict[str, Any]) -> None:
    rows = [row for chunk in case["chunks"] for _, row, *_ in chunk]
    width = len(rows[0]) if rows else max(case["key"]) + 1
    schema = TableSchema([Column(f"c{place}", "int64", nullable=True) for place in range(width)])
    key = [f"c{place}" for place in case["key"]]
    chunks = [Chunk.from_rows(schema, chunk) for chunk in case["chunks"]]
    try:
        found = compacted(chunks, key, form=case["output"])
    except InconsistentOperationError:
        assert case["expect_error"] == "inconsistent_operation"
        return
    assert "expect_error" not in case, f"nothing was refused: {list(found)}"
    assert [[op, list(row)] for op, row in found] == case["expect"]


def run_noop_elimination(case: dict[str, Any]) -> None:
    schema = TableSchema([Column("a", "int64"), Column("b", "int64")])
    found = Chunk.from_rows(schema, case["chunk"]).without_noops()
    assert [[op, list(row)] for op, row in found] == case["expect"]


# Plans ----------------------------------------------------------------------------------------------------------------


def node_of(plan: dict[str, Any]) -> PlanNode:
    only(plan, "op", "tables", "inputs")
    return PlanNode(plan["op"], tuple(plan["tables"]), tuple(map(node_of, plan["inputs"])))


def run_table_ids(case: dict[str, Any]) -> None:
    found = plan_tables(node_of(case["plan"]))
    assert [{"id": table.id, "op": table.operator, "table": table.role} for table in found] == case["expect"]
    assert len({table.name for table in found}) == len(found)


def run_table_layout(case: dict[str, Any]) -> None:
    found = LAYOUTS[case["operator"]["op"].removeprefix("append_only_")](case["operator"])
    assert [as_json(table) for table in found] == case["expect_tables"]


def as_json(table: Any) -> dict[str, Any]:
    return {
        "role": table.role,
        "columns": list(table.columns),
        "pk": [list(part) for part in table.primary_key],
        "value_indices": list(table.value_places),
        "prefix_len": table.prefix_length,
    }


def columns_of(operator: dict[str, Any]) -> list[str]:
    columns = operator["input_columns"]
    return [f"c{place}" for place in range(columns)] if isinstance(columns, int) else columns


def aggregation(operator: dict[str, Any]) -> Any:
    calls = [
        AggregateCall(
            call["kind"],
            tuple(call["args"]),
            call.get("distinct", False),
            tuple((place, order) for place, order in call.get("order_by", [])),
        )
        for call in operator["agg_calls"]
    ]
    names = [call.kind for call in calls]
    if len(set(names)) < len(names):
        names = [f"call{place}" for place in range(len(calls))]
    return aggregation_tables(
        columns_of(operator),
        operator["stream_key"],
        operator["group_key"],
        calls,
        append_only=operator["append_only"],
        call_names=names,
    )


def join(operator: dict[str, Any]) -> Any:
    return join_tables(*((s["columns"], s["stream_key"], s["join_key"]) for s in (operator["left"], operator["right"])))


def top_n(operator: dict[str, Any]) -> Any:
    return top_n_tables(
        columns_of(operator),
        operator["stream_key"],
        operator["order_by"],
        operator.get("group_by", operator.get("group_key", ())),
        append_only=operator["op"].startswith("append_only"),
    )


LAYOUTS = {
    "hash_agg": aggregation,
    "simple_agg": aggregation,
    "hash_join": join,
    "top_n": top_n,
    "group_top_n": top_n,
    "dedup": lambda operator: deduplication_tables(columns_of(operator), operator["dedup_cols"]),
}

RUNNERS = {
    name.removeprefix("run_"): function for name, function in list(globals().items()) if re.fullmatch(r"run_\w+", name)
} | {"storage_table": run_state_table}
