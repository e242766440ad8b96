"""Which operators a space keeps state of, and what they did, so a changed pipeline can reuse what still fits.

The dictionary ``$operators`` lists them: ``{"fingerprint": "9f...", "does": "HashAgg(carrier, count() as n)"}``. What
they read is described under ``reads``, in words, for messages only; earlier versions described there what is read in
several ways once for each of them. ``own`` is true for an operator that a user has written, and missing for the others.
A pipeline that is an operator itself has a dictionary of its own, below its name.

``python`` is the version of Python that has stored it, and ``calls``, if it calls functions in expressions, a digest of
the types of what they return. Both are missing in what earlier versions have stored.

If a run counts batches, ``repeatable`` says whether a batch that is fed once more gives an operator the rows that it
gave at first, with the same numbers. It is missing in what earlier versions have stored. They used the epoch to number
the rows that a user's object returned; and if an operator took the rows of a source in order, they gave the rows of
that source as they come to everything else that read it, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from objectspace.errors import ObjectSpaceError
from objectspace.operators.plan import Node, Plan, identity
from objectspace.operators.rules import ALL_RULES, UNNOTED
from objectspace.operators.sources import KEY_VALUE_TABLES
from objectspace.relational import drop_table, tables
from objectspace.space import TABLES, ObjectSpace

OPERATORS = "$operators"
"""The name of the dictionary that lists the operators of a space."""

KEPT_BELOW = frozenset(
    {
        "Apply",
        "Dedup",
        "DynamicFilter",
        "GroupTopN",
        "HashAgg",
        "HashJoin",
        "IntervalJoin",
        "Materialize",
        "SessionWindow",
        "SimpleAgg",
        "TemporalJoin",
        "TopN",
        "WatermarkFilter",
    }
)
"""The library's operators that keep state, all of it under names that begin with their own name and a slash."""


_DIGEST = re.compile("#[0-9a-f]{8}")
"""What the name of a function ends with that is known by its code."""


class PipelineChangedError(ObjectSpaceError):
    """The stored state belongs to a different pipeline; nothing was changed."""


@dataclass(frozen=True)
class Difference:
    """How a pipeline differs from what a space keeps state of.

    Args:
        new: operators that have no state yet, inputs before readers.
        gone: the names of stored operators that the pipeline no longer has, or has with another structure.
    """

    new: tuple[Node, ...]
    gone: tuple[str, ...]

    def describe(self, space: ObjectSpace, plan: Plan, under: str = "") -> str:
        """Describe what changed; operators that only read from a changed one are just named."""
        stored = _stored(space, under)
        now = {plan.names[node]: node for node in self.new}
        changed = {node for node in self.new if plan.names[node] in self.gone}
        lines, behind = [], []
        for name in self.gone:
            record, node = stored[name], now.get(name)
            if node is None:
                lines.append(_told(name, record, "is gone, or reads something else"))
            elif node.describe() != record["does"]:
                lines.append(_told(name, record, f"is now {node.describe()}"))
            elif not changed.isdisjoint(node.origins()):
                behind.append(name)
            else:
                lines.append(_told(name, record, _reason(record, node)))
        lines += [f"{name!r}, {node.describe()}, is new" for name, node in now.items() if name not in self.gone]
        if behind:
            lines.append(f"and with them what reads from them: {', '.join(map(repr, behind))}")
        lines += _other_pythons(stored[name] for name in self.gone)
        return "; ".join(lines)


def _told(name: str, record: Mapping[str, Any], what: str) -> str:
    return f"{name!r}, stored as {record['does']}, {what}"


def _inputs_that_differ(record: Mapping[str, Any], node: Node) -> str:
    """Describe what an operator used to read and reads now; its columns if that is not known, or the same."""
    before, after = record.get("reads", []), node.reads()
    old, new = [one for one in before if one not in after], [one for one in after if one not in before]
    if not before or not (old or new):
        told = f"now has other inputs, or other columns: {node.schema}"
        return f"{told}; if none of the pipeline has changed, an earlier version of the library gave it others"
    return (
        f"now has other inputs: it read {', '.join(old) or 'nothing else'}, and now reads"
        f" {', '.join(new) or 'nothing else'}"
    )


def _reason(record: Mapping[str, Any], node: Node) -> str:
    """Describe why the state of an operator does not fit, though the operator does what it did."""
    if record["fingerprint"] == node.fingerprint:
        return f"calls functions whose results had other types: now {', '.join(node.calls_of_all()):.300}"
    return _inputs_that_differ(record, node) + _rules_that_changed(record, node)


def _other_pythons(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say with which other versions of Python some operators were stored, if there are any."""
    calling = (one for one in records if any(map(_DIGEST.search, (one["does"], *one.get("reads", [])))))
    found = sorted({one["python"] for one in calling if "python" in one} - {_python()})
    if not found:
        return []
    return [
        f"Python {', '.join(found)} stored them, and this is {_python()}: functions are known by their compiled code,"
        " so another version of Python may count as a change"
    ]


def _python() -> str:
    """Return what decides how functions are compiled: the version of Python, and its option ``-O``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}{' -O' * sys.flags.optimize}"


def _rules_that_changed(record: Mapping[str, Any], node: Node) -> str:
    """Describe what the version that stored an operator computed differently; empty if nothing."""
    known = ALL_RULES[: record.get("rules", UNNOTED if "python" in record else 0)]
    found = [rule for rule in node.rules_of_all() if rule not in known]
    return f"; or an earlier version stored it, whose rules differed from these: {'; '.join(found)}" if found else ""


def stored_names(space: ObjectSpace) -> dict[str, list[str]]:
    """Return the names of the stored operators by their identities, in the order in which they were stored."""
    found: dict[str, list[str]] = {}
    for name, record in _stored(space).items():
        found.setdefault(_identity(record), []).append(name)
    return found


def identities(space: ObjectSpace, names: Iterable[str]) -> dict[str, str]:
    """Return the identities of some stored operators by their names."""
    stored = _stored(space)
    return {name: _identity(stored[name]) for name in names}


def _identity(record: Mapping[str, Any]) -> str:
    return identity(record["fingerprint"], record.get("calls", ""))


def compare(space: ObjectSpace, plan: Plan, under: str = "") -> Difference:
    """Return how a plan differs from what a space keeps state of.

    Args:
        space: the space.
        plan: the plan.
        under: the prefix of the names of its tables, if it is not the only plan in the space.
    """
    stored = _stored(space, under)
    new = tuple(
        node for node in plan.stateful if plan.names[node] not in stored or not _fits(stored[plan.names[node]], node)
    )
    fitting = {plan.names[node] for node in plan.stateful} - {plan.names[node] for node in new}
    return Difference(new, tuple(name for name in stored if name not in fitting))


def _fits(record: Mapping[str, Any], node: Node) -> bool:
    """Return whether what is stored of an operator is the state of a node."""
    # Whether there are calls is part of the fingerprint: without a digest, an earlier version has stored it.
    return _identity(record) in (node.identity, node.fingerprint)


def require_accounted(space: ObjectSpace, plan: Plan, difference: Difference, position: str) -> None:
    """Make sure that the state below the names of operators belongs to known operators and a known number of batches.

    A salvage may have left out the object that says so. Tables without rows come from a run that was only opened.
    Objects count only if it is certain that something else was left out: they may have been laid down for an operator
    that has yet to get its first batch.

    Args:
        space: the space.
        plan: the plan.
        difference: how the plan differs from what is stored.
        position: the name of the value that says how many batches are in the state.

    Raises:
        PipelineChangedError: this is not known; the error names the tables and the objects.
    """
    stored, has_position = _stored(space), position in space
    nodes = {plan.names[node]: node for node in plan.stateful}
    unsure = [name for name in nodes if name not in (stored if has_position else difference.gone)]
    below = tuple(f"{name}/" for name in unsure)
    known = tables(space)
    rows = [one for one in known if one.startswith(below) and one in space and _has_rows(space, one)]
    lost = [name for name in unsure if _was_noted(space, name, position)]
    objects = [one for name in lost for one in _kept_below(space, name, is_own=nodes[name].is_own) if one not in known]
    if rows or objects:
        missing = f"no entry of their operator in {OPERATORS!r}" if has_position else f"no value {position!r}"
        raise PipelineChangedError(
            f"the space has {_listed(rows, objects)}, but {missing}, so nothing tells which batches are in them, and a"
            " run would count those twice: a salvage may have left it out, or these are not those of a pipeline; go"
            " back to a checkpoint that has it with space.rollback(epoch=...), or drop each of these tables with"
            " drop_table(space, name), delete each of these objects with space.delete(name), and give all batches,"
            " from the first one"
        )


def _was_noted(space: ObjectSpace, name: str, position: str) -> bool:
    """Return whether an operator about which something is missing was certainly noted before.

    A run counts batches before it notes operators, and makes the dictionary of operators before it counts the first
    batch.
    """
    if position not in space:
        return name in _stored(space)
    return OPERATORS not in space and space.get_value(position).value > 0


def _listed(rows: list[str], objects: list[str]) -> str:
    tables, others = ", ".join(map(repr, rows)), ", ".join(map(repr, objects))
    return " and ".join([f"rows in {tables}"] * bool(rows) + [f"objects {others}"] * bool(objects))


def begin(space: ObjectSpace, position: str) -> None:
    """Store a count of 0 batches and an empty list of operators, if there are none: what is missing later on is lost.

    Dirties: an index row for each, and an item, once.
    """
    space.get_or_create_dictionary(OPERATORS)
    space.get_or_create_value(position, 0)


def require_whole(space: ObjectSpace, plan: Plan, difference: Difference) -> None:
    """Make sure that no table that the space had of an operator is gone: a salvage may have left it out.

    Raises:
        PipelineChangedError: one is gone; the error names the operator and the tables.
    """
    known = space.get_dictionary(TABLES) if TABLES in space else {}
    for node in plan.stateful:
        name = plan.names[node]
        gone = [one for one in (f"{name}/{role}" for role, _ in node.tables) if one not in space]
        # One of the library's operators makes all of them when it is opened, a user's operator perhaps later.
        lost = [one for one in gone if one in known or not node.is_own]
        if lost and node not in difference.new:
            raise PipelineChangedError(
                f"{name!r} ({node.describe()}) has state in the space, but its {', '.join(map(repr, lost))} is gone: a"
                " salvage may have left it out; go back to a checkpoint that has it with space.rollback(epoch=...), or"
                " drop its other tables with drop_table(space, name), forget it with del"
                f" space.get_dictionary({OPERATORS!r})[{name!r}], and give all batches, from the first one"
            )


def _has_rows(space: ObjectSpace, table: str) -> bool:
    return len(space.get_sorted_dictionary(table)) > 0


def forget(space: ObjectSpace, names: Iterable[str]) -> None:
    """Delete the state of some operators: what lies below their names.

    An object with exactly the name of an operator is its state only if a user has written the operator. Earlier
    versions did not note who had written one: there its kind tells. They also accepted an operator with the name below
    which key-value tables lie: these tables stay.

    Dirties: the index and the entries of the catalogues, for each of their tables and objects.
    """
    stored = _stored(space)
    for name in names:
        record = stored[name]
        is_named = "own" in record or record["does"].partition("(")[0] not in KEPT_BELOW
        own, known = _kept_below(space, name, is_own=is_named), tables(space)
        for one in own:
            if one in known:
                drop_table(space, one)
            else:
                space.delete(one)
        del space.get_dictionary(OPERATORS)[name]


def _kept_below(space: ObjectSpace, name: str, *, is_own: bool) -> list[str]:
    """Return the names of the objects that are the state of an operator, including tables."""
    others = _key_value_tables(space) if name == KEY_VALUE_TABLES else ()
    kept = [one for one in space if one.startswith(f"{name}/") or (is_own and one == name)]
    return [one for one in kept if one not in others]


def _key_value_tables(space: ObjectSpace) -> Container[str]:
    """Return the names of the objects that key-value tables are made of."""
    from objectspace.kvt.catalogue import objects_of_tables  # Hardly any pipeline needs it.

    return objects_of_tables(space)


def note(space: ObjectSpace, plan: Plan, nodes: Iterable[Node], under: str = "", **more: bool) -> None:
    """Note what some operators do, and perhaps more about them. Dirties: an item for each."""
    for node in nodes:
        told = {**_beside_fingerprint(node), **more, **({"own": True} if node.is_own else {})}
        record = {"fingerprint": node.fingerprint, "does": node.describe(), "reads": node.reads(), **told}
        space.get_or_create_dictionary(f"{under}{OPERATORS}")[plan.names[node]] = record


def _beside_fingerprint(node: Node) -> dict[str, Any]:
    """Return what is noted of an operator because its fingerprint does not say it."""
    calls = {"calls": node.types_of_calls} if node.types_of_calls else {}
    rules = {"rules": len(ALL_RULES)} if node.rules_of_all() else {}
    return {"python": _python(), **rules, **calls}


def unrepeatable(space: ObjectSpace, plan: Plan, difference: Difference, *, is_in_step: bool) -> set[Node]:
    """Return the stored operators to which a batch that is fed once more may give other rows than at first.

    Args:
        space: the space.
        plan: the plan.
        difference: how the plan differs from what is stored.
        is_in_step: whether each batch so far had the number of its epoch.
    """
    stored, found = _stored(space), set[Node]()
    kept = [node for node in plan.stateful if node not in difference.new]
    early = [node for node in kept if "repeatable" not in stored[plan.names[node]]]
    mixed = {one for node in early if node.takes_order for one in node.origins()}
    if any(_took_order(stored[name]) for name in difference.gone):
        mixed |= {node for node in plan.nodes if not node.inputs}
    for node in kept:  # Inputs come before readers.
        is_numbering = node.is_one_of(["Apply"]) and node.append_only
        unsure = found if node.takes_order else found | mixed
        is_unsure = (is_numbering and not is_in_step) or not unsure.isdisjoint(node.origins())
        if is_unsure if node in early else not stored[plan.names[node]]["repeatable"]:
            found.add(node)
    return found


def require_repeatable(plan: Plan, new: Iterable[Node], unsure: Container[Node]) -> None:
    """Make sure that new operators can be fed by the operators that they read from.

    Raises:
        PipelineChangedError: one reads from an operator that is unrepeatable.
    """
    for node in new:
        if found := [repr(plan.names[one]) for one in node.origins() if one in unsure]:
            raise PipelineChangedError(
                f"{plan.names[node]!r} ({node.describe()}) is new, and reads from {', '.join(found)}: its rows"
                " were numbered by an earlier version, and batches that are fed again would give others: go"
                " back to the pipeline as it was, or give this one another store, with all batches from the first"
                " one"
            )


def note_repeatable(space: ObjectSpace, plan: Plan, unsure: Container[Node]) -> None:
    """Note which operators are repeatable, unless that is noted already. Dirties: an item for each, once."""
    stored = _stored(space)
    for node in plan.stateful:
        if "repeatable" not in stored[plan.names[node]]:
            note(space, plan, [node], repeatable=node not in unsure)


def _took_order(record: Mapping[str, Any]) -> bool:
    """Return whether an earlier version gave this operator, and others beside it, the rows of sources as they come."""
    does = record["does"]
    return "repeatable" not in record and does.startswith("Materialize(") and does != "Materialize(check)"


def note_once(space: ObjectSpace, plan: Plan, under: str) -> None:
    """Note what all operators of a plan do, unless anything is noted already. Dirties: an item for each, once."""
    if f"{under}{OPERATORS}" not in space:
        note(space, plan, plan.stateful, under)


def require_same(space: ObjectSpace, plan: Plan, under: str) -> None:
    """Make sure that the state of one of several pipelines is that of a plan, if it is noted.

    Args:
        space: the space.
        plan: the plan.
        under: what the names of its tables begin with.

    Raises:
        PipelineChangedError: the state is that of another pipeline; the error says what differs.
    """
    difference = compare(space, plan, under)
    if _stored(space, under) and (difference.new or difference.gone):
        raise PipelineChangedError(
            f"the pipeline {under.rstrip('/')!r} is not the one the state belongs to:"
            f" {difference.describe(space, plan, under)}; go back to the pipeline as it was, or give it another name"
            " and the input from its beginning"
        )


def _stored(space: ObjectSpace, under: str = "") -> Mapping[str, Any]:
    """Return the operators that are noted, by their names."""
    name = f"{under}{OPERATORS}"
    return space.get_dictionary(name) if name in space else {}
