"""Which operators a space keeps state of, and what they did: so that a changed pipeline uses again what still fits.

They stand in the dictionary ``$operators``: ``{"fingerprint": "9f...", "does": "HashAgg(carrier, count() as n)"}``,
with what they read under ``reads``, in words, for the messages alone. Of what a user has written ``own`` is true, and
missing elsewhere. A pipeline that is an operator itself has a dictionary of its own, below its name.

Where a run counts batches, ``repeatable`` says whether a batch that is fed once more gives an operator the rows that it
gave at first, with the same numbers. It is missing in what earlier versions have stored. They numbered rows that an
object of a user returned by the epoch, and gave rows as they come to all that reads a source of what takes order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from objectspace.errors import ObjectSpaceError
from objectspace.operators.plan import Node, Plan
from objectspace.operators.sources import KEY_VALUE_TABLES
from objectspace.relational import drop_table, tables
from objectspace.relational.catalogue import TABLES
from objectspace.space import ObjectSpace

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
"""The operators of the library that keep state, all of it under names that begin with theirs and a slash."""


class PipelineChangedError(ObjectSpaceError):
    """A pipeline is not the one that its state is of; nothing was changed."""


@dataclass(frozen=True)
class Difference:
    """How a pipeline differs from what a space keeps state of.

    Args:
        new: operators without state of their own, inputs before readers.
        gone: names of stored operators that the pipeline has no more, or has with another structure.
    """

    new: tuple[Node, ...]
    gone: tuple[str, ...]

    def describe(self, space: ObjectSpace, plan: Plan, under: str = "") -> str:
        """Return in words what changed; operators that only read from one that did are just named."""
        stored = _stored(space, under)
        now = {plan.names[node]: node for node in self.new}
        changed = {node for node in self.new if plan.names[node] in self.gone}
        lines, behind = [], []
        for name in self.gone:
            record, node = stored[name], now.get(name)
            if node is None:
                lines.append(_told(name, record, "is there no more, or reads something else"))
            elif node.describe() != record["does"]:
                lines.append(_told(name, record, f"is now {node.describe()}"))
            elif not changed.isdisjoint(node.origins()):
                behind.append(name)
            else:
                lines.append(_told(name, record, _inputs_that_differ(record, node) + _rules_that_changed(node)))
        lines += [f"{name!r}, {node.describe()}, is new" for name, node in now.items() if name not in self.gone]
        if behind:
            lines.append(f"and with them what reads from them: {', '.join(map(repr, behind))}")
        return "; ".join(lines)


def _told(name: str, record: Mapping[str, Any], what: str) -> str:
    return f"{name!r}, stored as {record['does']}, {what}"


def _inputs_that_differ(record: Mapping[str, Any], node: Node) -> str:
    """Return in words what an operator has read and reads now; where that is not known, or the same, its columns."""
    before, after = record.get("reads", []), node.reads()
    old, new = [one for one in before if one not in after], [one for one in after if one not in before]
    if not before or not (old or new):
        return f"has now other inputs, or other columns: {node.schema}"
    return (
        f"has now other inputs: it has read {', '.join(old) or 'nothing else'}, and reads now"
        f" {', '.join(new) or 'nothing else'}"
    )


def _rules_that_changed(node: Node) -> str:
    """Return in words what earlier versions have computed otherwise; nothing where that is nothing."""
    found = node.rules_of_all()
    return f"; or an earlier version stored it, which had other rules than these: {'; '.join(found)}" if found else ""


def stored_names(space: ObjectSpace) -> dict[str, list[str]]:
    """Return the names of the stored operators by their fingerprints, in the order in which they were stored."""
    found: dict[str, list[str]] = {}
    for name, record in _stored(space).items():
        found.setdefault(record["fingerprint"], []).append(name)
    return found


def fingerprints(space: ObjectSpace, names: Iterable[str]) -> dict[str, str]:
    """Return the fingerprints of some stored operators by their names."""
    stored = _stored(space)
    return {name: stored[name]["fingerprint"] for name in names}


def compare(space: ObjectSpace, plan: Plan, under: str = "") -> Difference:
    """Return how a plan differs from what a space keeps state of.

    Args:
        space: the space.
        plan: the plan.
        under: what the names of its tables begin with, where it is not the only one in the space.
    """
    stored = _stored(space, under)
    new = tuple(
        node
        for node in plan.stateful
        if plan.names[node] not in stored or stored[plan.names[node]]["fingerprint"] != node.fingerprint
    )
    fitting = {plan.names[node] for node in plan.stateful} - {plan.names[node] for node in new}
    return Difference(new, tuple(name for name in stored if name not in fitting))


def require_accounted(space: ObjectSpace, plan: Plan, difference: Difference, position: str) -> None:
    """Make sure that it is known of which operator the state is that lies below their names, and of how many batches.

    A salvage may have left out the object that says so. Tables without rows are those of a run that was only opened.
    Objects are counted only where something else was left out for certain: they may have been laid down for an
    operator that has yet to get its first batch.

    Args:
        space: the space.
        plan: the plan.
        difference: how the plan differs from what is stored.
        position: the name of the value that says how many batches are in the state.

    Raises:
        PipelineChangedError: it is not; it names the tables and the objects.
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
            f"the space has {_listed(rows, objects)}, but {missing}, so that nothing tells which batches are in them,"
            " and a run would count those twice: a salvage may have left it out, or these are not those of a pipeline;"
            " go back to a checkpoint where it is there with space.rollback(epoch=...), or drop each of these tables"
            " with drop_table(space, name), delete each of these objects with space.delete(name), and give all"
            " batches, from the first one"
        )


def _was_noted(space: ObjectSpace, name: str, position: str) -> bool:
    """Tell whether an operator was noted for certain of which not all is known: a run counts batches before it notes.

    A run also makes the dictionary of operators before it counts the first one.
    """
    if position not in space:
        return name in _stored(space)
    return OPERATORS not in space and space.get_value(position).value > 0


def _listed(rows: list[str], objects: list[str]) -> str:
    tables, others = ", ".join(map(repr, rows)), ", ".join(map(repr, objects))
    return " and ".join([f"rows in {tables}"] * bool(rows) + [f"objects {others}"] * bool(objects))


def begin(space: ObjectSpace, position: str) -> None:
    """Count no batches, where none are counted yet, and list no operators: what is not there later on is lost.

    Dirties: an index row for each, and an item, once.
    """
    space.get_or_create_dictionary(OPERATORS)
    space.get_or_create_value(position, 0)


def require_whole(space: ObjectSpace, plan: Plan, difference: Difference) -> None:
    """Make sure that no table of an operator is gone that the space had: a salvage may have left it out.

    Raises:
        PipelineChangedError: one is; it names the operator and the tables.
    """
    known = space.get_dictionary(TABLES) if TABLES in space else {}
    for node in plan.stateful:
        name = plan.names[node]
        gone = [one for one in (f"{name}/{role}" for role, _ in node.tables) if one not in space]
        # An operator of the library makes all of them when it is opened, one of a user perhaps later.
        lost = [one for one in gone if one in known or not node.is_own]
        if lost and node not in difference.new:
            raise PipelineChangedError(
                f"{name!r} ({node.describe()}) has state in the space, but its {', '.join(map(repr, lost))} is gone: a"
                " salvage may have left it out; go back to a checkpoint where it is there with"
                " space.rollback(epoch=...), or drop its other tables with drop_table(space, name), forget it with"
                f" del space.get_dictionary({OPERATORS!r})[{name!r}], and give all batches, from the first one"
            )


def _has_rows(space: ObjectSpace, table: str) -> bool:
    return len(space.get_sorted_dictionary(table)) > 0


def forget(space: ObjectSpace, names: Iterable[str]) -> None:
    """Delete the state of some operators: what lies below their names.

    An object that is called exactly like an operator is the state of one that a user has written, or none. Earlier
    versions have not noted who has written one: there its kind tells it. They have also taken an operator that is
    called like what key-value tables lie under: these stay.

    Dirties: for each of their tables and objects the index, and the entries of the catalogues.
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
    """Return the names of the objects that are the state of an operator, tables too."""
    others = _key_value_tables(space) if name == KEY_VALUE_TABLES else ()
    kept = [one for one in space if one.startswith(f"{name}/") or (is_own and one == name)]
    return [one for one in kept if one not in others]


def _key_value_tables(space: ObjectSpace) -> Container[str]:
    """Return the names of the objects that key-value tables are made of."""
    from objectspace.kvt.catalogue import objects_of_tables  # Hardly any pipeline takes it.

    return objects_of_tables(space)


def note(space: ObjectSpace, plan: Plan, nodes: Iterable[Node], under: str = "", **more: bool) -> None:
    """Note what some operators do, and perhaps more of them. Dirties: an item for each."""
    for node in nodes:
        told = {**more, "own": True} if node.is_own else more
        record = {"fingerprint": node.fingerprint, "does": node.describe(), "reads": node.reads(), **told}
        space.get_or_create_dictionary(f"{under}{OPERATORS}")[plan.names[node]] = record


def unrepeatable(space: ObjectSpace, plan: Plan, difference: Difference, *, is_in_step: bool) -> set[Node]:
    """Return the stored operators to which a batch that is fed once more may give other rows than it gave at first.

    Args:
        space: the space.
        plan: the plan.
        difference: how the plan differs from what is stored.
        is_in_step: whether each batch so far has been the epoch of its number.
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
    """Make sure that what is new can be fed by the operators that it reads from.

    Raises:
        PipelineChangedError: it reads from one that is unrepeatable.
    """
    for node in new:
        if found := [repr(plan.names[one]) for one in node.origins() if one in unsure]:
            raise PipelineChangedError(
                f"{plan.names[node]!r} ({node.describe()}) is new, and reads from {', '.join(found)}: its rows"
                " were numbered by an earlier version, and batches that are fed once more would give others: go"
                " back to the pipeline as it was, or give this one another store, with all batches from the first"
                " one"
            )


def note_repeatable(space: ObjectSpace, plan: Plan, unsure: Container[Node]) -> None:
    """Note which operators are repeatable, where that is not noted yet. Dirties: an item for each, once."""
    stored = _stored(space)
    for node in plan.stateful:
        if "repeatable" not in stored[plan.names[node]]:
            note(space, plan, [node], repeatable=node not in unsure)


def _took_order(record: Mapping[str, Any]) -> bool:
    """Tell whether an earlier version gave this operator, and others beside it, the rows of sources as they come."""
    does = record["does"]
    return "repeatable" not in record and does.startswith("Materialize(") and does != "Materialize(check)"


def note_once(space: ObjectSpace, plan: Plan, under: str) -> None:
    """Note what all operators of a plan do, where nothing is noted yet. Dirties: an item for each, once."""
    if f"{under}{OPERATORS}" not in space:
        note(space, plan, plan.stateful, under)


def require_same(space: ObjectSpace, plan: Plan, under: str) -> None:
    """Make sure that the state of a pipeline among others is that of a plan, where that is noted.

    Args:
        space: the space.
        plan: the plan.
        under: what the names of its tables begin with.

    Raises:
        PipelineChangedError: the state is that of another pipeline; it says what differs.
    """
    difference = compare(space, plan, under)
    if _stored(space, under) and (difference.new or difference.gone):
        raise PipelineChangedError(
            f"the pipeline {under.rstrip('/')!r} is not the one that the state is of:"
            f" {difference.describe(space, plan, under)}; go back to the pipeline as it was, or give it another name"
            " and the input from its beginning"
        )


def _stored(space: ObjectSpace, under: str = "") -> Mapping[str, Any]:
    """Return the operators that are noted, by their names."""
    name = f"{under}{OPERATORS}"
    return space.get_dictionary(name) if name in space else {}
