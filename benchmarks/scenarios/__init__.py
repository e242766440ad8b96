"""The scenarios, in the order in which they are listed and run. A new module of them is added here."""

from __future__ import annotations

from benchmarks.scenarios import checkpoint, conversation, history, memory, middle, restart, scripts, state

SCENARIOS = (
    *checkpoint.SCENARIOS,
    *conversation.SCENARIOS,
    *state.SCENARIOS,
    *restart.SCENARIOS,
    *middle.SCENARIOS,
    *history.SCENARIOS,
    *memory.SCENARIOS,
    *scripts.SCENARIOS,
)
