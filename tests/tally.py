"""How many faults the tests have tried, by kind; ``pytest --crash`` prints it at the end."""

from __future__ import annotations

from collections import Counter

TALLY: Counter[str] = Counter()
