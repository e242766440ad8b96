"""How the columns of a schema that has no ids were called before: which columns of a stored table they are.

A schema written in source code is often a chain of changes, ``FIRST.renamed("a", "c").with_column(...)``, which meets
tables of any age. The names of a table tell which state of the chain it is in, and the rest of the chain which of its
columns has which name now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from objectspace.relational.errors import SchemaError

Names = Mapping[str, str]
"""By the names of columns now: the names that they had."""


@dataclass(frozen=True)
class Renames:
    """The states that a chain of changes went through, from the one before the first that renamed or dropped a column.

    Args:
        steps: the names of all columns before each change, and what it renamed, the last change first.

    >>> chain = Renames().then(["a", "b"], {"c": "b"}).then(["a", "c"], {"b": "a"}).then(["b", "c"], {})
    >>> chain.names_in(["a", "b"], ["b", "c", "a"])
    {'b': 'a', 'c': 'b'}
    """

    steps: tuple[tuple[frozenset[str], Names], ...] = ()

    def then(self, names: Iterable[str], renamed: Names, *, is_drop: bool = False) -> Renames:
        """Return the chain with one more change.

        Args:
            names: the names before it.
            renamed: by the new names, the names of the columns that it renames.
            is_drop: whether it drops a column.
        """
        # As long as columns are only added, each is found by its name.
        counts = renamed or is_drop or self.steps
        return Renames(((frozenset(names), renamed), *self.steps)) if counts else self

    def names_in(self, table: Iterable[str], names: Iterable[str]) -> Names | None:
        """Return which columns a table has, and by which names, or ``None`` if the chain knows no such table.

        Args:
            table: the names of the columns of the table.
            names: the names of the columns now.

        Raises:
            SchemaError: the names of the table are those of several states, between which columns exchanged names.
        """
        there = frozenset(table)
        states = list(self._states(names))
        found = [state for known, state in states if known == there]
        if not found:
            first, state = states[-1]
            # Before the first state that is known, columns were only added.
            return {now: then for now, then in state.items() if then in there} if there < first else None
        newest, *others = found
        for now, then in newest.items():
            other = next((one[now] for one in others if one.get(now, then) != then), None)
            if other is not None:
                raise SchemaError(
                    f"column {now!r} may be the column {then!r} of the table or its {other!r}, because columns have"
                    " exchanged their names: begin with the schema that the table has, table.schema"
                )
        return newest

    def _states(self, names: Iterable[str]) -> Iterator[tuple[Set[str], Names]]:
        """Yield the names of each state, the newest first, and how the columns of now were called there."""
        then = {name: name for name in names}
        yield then.keys(), then
        for before, renamed in self.steps:
            then = {now: was for now, name in then.items() if (was := renamed.get(name, name)) in before}
            yield before, then
