"""What operators of users have in common."""

from __future__ import annotations

from objectspace.operators import Operator
from objectspace.relational import Chunk, TableSchema


class Passing(Operator):
    """An operator of a user that gives on what it takes."""

    def __init__(self, schema: TableSchema) -> None:
        super().__init__()
        self._schema = schema

    @property
    def schema(self) -> TableSchema:
        return self._schema

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        return [chunk]
