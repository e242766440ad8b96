"""The sizes at which objects change how they work, in one place so that tests can reach every way with few slots."""

from __future__ import annotations

from checkpoint import consistency

WHOLE_SLOTS = 1024
"""Objects of at most this many slots are read whole when they are first touched."""

PROMOTE_SHARE = 8
"""An object of which more than one eighth was read slot by slot is read whole, if it fits."""

SCAN_SHARE = 2 * PROMOTE_SHARE
"""Going through an object in the order of insertion and stopping early costs as much as one slot in this many."""

EXPECT_SHARE = 2
"""Reading one of several named slots costs as much as reading this many in one pass."""

FETCH_SHARE = PROMOTE_SHARE // EXPECT_SHARE
"""Reading this many slots that are named together costs as much as reading one slot by itself."""

AHEAD_SHARE = 16
"""With the slots of an object in memory, one for each so many is accounted for that may be read by itself next."""

WEIGHED_TOGETHER = 16
"""How many small slots that are read by themselves are weighed together: by itself each takes longer."""

FETCH_SLOTS, FETCH_ROOM = 1024, 16
"""How many slots that are named together are read at once: this many, or a sixteenth of what may be in memory."""

SLOT_BYTES = 256
"""In memory, a slot counts as one more for each time that its value has so many bytes."""

WEIGHED_SLOTS = 64 * 1024
"""When the sizes of more slots than this are known of an object, they count half as much as those that follow."""

PASSED_SLOTS = 16
"""A scan that steps over this many removed slots before it finds one notes where that is, for the next scan."""

CLEAR_ROWS = 32
"""Up to this many stored slots are deleted one by one when an object is cleared; more are left under its old id."""

OPEN_SHARE = 64
"""Once one slot in this many was noted as changed, noting no more is worth one comparison at the next save."""

OPEN_SHARE_AT_ONCE = 8
"""The same if one call sets many slots: noting them together costs less, so it takes more of them."""

DENSE_LENGTH = consistency.DENSE_LENGTH
"""Arrays up to this length store every slot when they are first stored, as a check of a store expects of them."""

FIRST_SLOTS = 16
"""How many elements at the head of a stored queue, or at the top of a stack, are read first: more only as they go."""

QUEUE_SLOTS = 1024
"""How many elements at the head of a stored queue are read at once at most."""

STACK_SLOTS = 1024
"""How many stored elements at most are brought to the top of a stack at once."""

COLUMN_SLOTS = 16
"""The rows of this many slots or more are made in whole columns if their keys and their values allow it."""

PROMOTE_CHARACTERS = 400
"""Slots of more characters than this are not read in advance: reading them takes far longer than finding them."""
