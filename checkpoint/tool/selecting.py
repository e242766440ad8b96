"""Choosing some objects of a state: the run that deletes the others, so that nothing is loaded, however large they are.

With a relational table goes its schema, with a key-value table its partitions and its entry in the catalogue.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import orjson

from checkpoint.run import CheckpointKind, Run
from checkpoint.tool import key_values
from checkpoint.tool.content import TABLES, State, absence


def selection(state: State, names: Sequence[str]) -> tuple[Run, set[str]]:
    """Return the run that leaves just some objects, empty where no name is given, and which of the names there are.

    Args:
        state: the state.
        names: the objects, relational tables and key-value tables to keep.
    """
    if not names:
        return Run(CheckpointKind.DIFFERENTIAL), set()
    known = {name for name in names if name in state}
    wanted: set[str] = set()
    schemas: set[str] = set()
    entries: dict[str, set[str]] = {}
    for name in known:
        wanted |= set(state.parts_of(name))
        if (table := state.key_value_table(name)) is not None:
            operator, path = key_values.split(table)
            entries.setdefault(operator, set()).update((path.split("/")[0], path))
        if state.columns(name) is not None:
            schemas.add(name)
    run = Run(CheckpointKind.DIFFERENTIAL)
    wanted |= {f"{operator}{key_values.COUNTER}" for operator in entries}
    catalogues = {f"{operator}{key_values.CATALOGUE}": paths for operator, paths in entries.items()}
    for catalogue, keys in {TABLES: schemas, **catalogues}.items():
        if keys and catalogue in state.index:
            wanted.add(catalogue)
            if catalogue not in known:
                _trim(run, state, catalogue, keys)
    run.index += [(row[0], row[1], None, None) for row in state.index.values() if row[1] not in wanted]
    return run, known


def require_found(names: Sequence[str], found: Collection[str], known: Collection[str]) -> None:
    """Refuse names that no store has.

    Args:
        names: the names.
        found: those of them that there are.
        known: all names that there are.

    Raises:
        CheckpointError: there is none of a name; those that may be meant are named.
    """
    for name in names:
        if name not in found:
            raise absence(name, known)


def _trim(run: Run, state: State, name: str, keys: Collection[str]) -> None:
    """Delete the entries of a catalogue but for some, and set its length; the ranks go on where they were."""
    object_id = state.find(name)[0]
    slots = [item.slot for item in state.reader.items(object_id)]
    gone = [slot for slot in slots if slot not in keys]
    if not gone:
        return
    stored = orjson.loads(state.reader.metadata(object_id)["length"])
    length, following = stored if isinstance(stored, list) else (stored, stored)
    length -= len(gone)
    # Only a kind that keeps the order of insertion has a next rank.
    is_ranked = state.find(name)[2] == "Dictionary"
    value = [length, following] if is_ranked and length != following else length
    run.metadata.append((object_id, "length", orjson.dumps(value).decode()))
    run.items += [(object_id, slot, None, None) for slot in gone]
