"""Which columns watermarks come for, besides that of a schema: a join has them for both of its times."""

from __future__ import annotations

from collections.abc import Sequence

from objectspace.operators.base import Operator
from objectspace.operators.computed import Rekey, Relabel, Select, Where
from objectspace.operators.dedup import Dedup
from objectspace.operators.hash_agg import HashAgg
from objectspace.operators.materialize import Materialize
from objectspace.operators.watermark_filter import WatermarkFilter
from objectspace.operators.windows import Hop

_PASS_ON = (Where, Select, Relabel, Rekey, Dedup, HashAgg, Materialize)
"""Those that pass on each watermark of a column which they keep."""


def columns_passed_on(operator: Operator, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the output that watermarks come for if some come for columns of the input.

    >>> from objectspace.relational import Column, TableSchema
    >>> hop = Hop(TableSchema([Column("at", "int64"), Column("id", "int64")], primary_key=["id"]), "at", 10, 5)
    >>> columns_passed_on(hop, ["id", "at"])
    ('window_start', 'id', 'at')
    """
    if isinstance(operator, Hop):
        return (*([operator.start] if operator.time_column in columns else ()), *columns)
    if isinstance(operator, WatermarkFilter):
        return tuple(columns)
    # A group that waits may be older than the watermark of columns other than the one that it waits for.
    if not isinstance(operator, _PASS_ON) or (isinstance(operator, HashAgg) and operator.emits_on_close):
        return ()
    return tuple([name for name in map(operator.kept_as, columns) if name is not None])
