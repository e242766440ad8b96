"""Event operators: single values in and out, on persisted objects that save what an event changed and no more.

>>> from objectspace import VolatileObjectSpace
>>> from objectspace.operators.events import Average, Chain, SelectMany, Take, Where
>>> space = VolatileObjectSpace()
>>> query = Chain(SelectMany(lambda x: Chain(Where(lambda y: y > 0), Take(5))), Average(running=True))
>>> query.open(space, "query")
>>> query.on_next("a"), query.on_inner("a", 4), query.on_inner("a", -1), query.on_inner("a", 6)
([], [4.0], [], [5.0])
"""

from objectspace.operators.events.base import Chain, EventOperator
from objectspace.operators.events.buffer import Buffer
from objectspace.operators.events.combine import CombineLatest, Zip
from objectspace.operators.events.nested import GroupBy, SelectMany
from objectspace.operators.events.simple import Average, Concat, Select, SkipUntil, Take, Where
from objectspace.operators.events.window import Window

__all__ = [
    "Average",
    "Buffer",
    "Chain",
    "CombineLatest",
    "Concat",
    "EventOperator",
    "GroupBy",
    "Select",
    "SelectMany",
    "SkipUntil",
    "Take",
    "Where",
    "Window",
    "Zip",
]
