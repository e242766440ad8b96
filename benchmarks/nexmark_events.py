"""The events of Nexmark, an online auction: people, auctions and bids, seeded, in the proportions of the original.

Of 50 events one is a person, three are auctions and 46 are bids. Half of the bids go to one hot auction, a quarter of
them come from a hot bidder, and most auctions from a hot seller. No two events have one time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from objectspace.relational import Column, TableSchema

Row = tuple[Any, ...]
Batch = dict[str, list[Row]]

SCHEMAS = {
    "person": TableSchema(
        [
            Column("id", "int64"),
            Column("name", "string"),
            Column("email", "string"),
            Column("city", "string"),
            Column("state", "string"),
            Column("date_time", "timestamp"),
        ],
        ["id"],
    ),
    "auction": TableSchema(
        [
            Column("id", "int64"),
            Column("item", "string"),
            Column("initial_bid", "int64"),
            Column("reserve", "int64"),
            Column("date_time", "timestamp"),
            Column("expires", "timestamp"),
            Column("seller", "int64"),
            Column("category", "int64"),
        ],
        ["id"],
    ),
    "bid": TableSchema(
        [
            Column("auction", "int64"),
            Column("bidder", "int64"),
            Column("price", "int64"),
            Column("channel", "string"),
            Column("url", "string"),
            Column("date_time", "timestamp"),
            Column("extra", "string"),
        ]
    ),
}
"""The columns of each kind of event; a bid has no key."""

SIDE = TableSchema([Column("key", "int64"), Column("value", "string")], ["key"])
"""The columns of the bounded input that q13 joins with."""

SIDE_ROWS: list[Row] = [(key, f"side {key}") for key in range(50)]

FIRST_ID = 1000
HOT = 100
"""How many of the last people and auctions take part in what happens."""

_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Cheyenne")
_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


@dataclass
class Nexmark:
    """A generator of events; the same seed gives the same events.

    Args:
        seed: the seed.
        gap: the time from one event to the next.
        start: the time of the first event.
    """

    seed: int = 7
    gap: timedelta = timedelta(milliseconds=10)
    start: datetime = datetime(2026, 1, 1)
    people: int = field(default=0, init=False)
    auctions: int = field(default=0, init=False)

    def batches(self, events: int, size: int) -> Iterator[Batch]:
        """Yield events in batches.

        Args:
            events: how many in all.
            size: how many a batch.
        """
        self.people = self.auctions = 0
        chance = random.Random(self.seed)
        for first in range(0, events, size):
            batch: Batch = {"person": [], "auction": [], "bid": []}
            for number in range(first, min(first + size, events)):
                kind, row = self._event(number, chance)
                batch[kind].append(row)
            yield batch

    def _event(self, number: int, chance: random.Random) -> tuple[str, Row]:
        moment, place = self.start + number * self.gap, number % 50
        if place == 0:
            return "person", self._person(moment, chance)
        if place < 4:
            return "auction", self._auction(moment, chance)
        return "bid", self._bid(moment, chance)

    def _person(self, moment: datetime, chance: random.Random) -> Row:
        name, place = chance.choice(_NAMES), chance.randrange(len(_STATES))
        self.people += 1
        number = FIRST_ID + self.people - 1
        return number, name, f"{name.lower()}{number}@example.com", _CITIES[place], _STATES[place], moment

    def _auction(self, moment: datetime, chance: random.Random) -> Row:
        seller = self._one_of(self.people, chance, 0.75)
        price = _price(chance)
        self.auctions += 1
        number = FIRST_ID + self.auctions - 1
        expires = moment + self.gap * chance.randrange(100, 2000)
        category = chance.randrange(10, 15)
        return number, f"item {number}", price, price + _price(chance), moment, expires, seller, category

    def _bid(self, moment: datetime, chance: random.Random) -> Row:
        auction, bidder = self._one_of(self.auctions, chance, 0.5), self._one_of(self.people, chance, 0.25)
        letters = "".join(chance.choices("abcde", k=8))
        if chance.random() < 0.5:
            channel = chance.choice(_CHANNELS)
            url = f"https://www.nexmark.com/{channel.lower()}/{letters[:3]}/{letters[3:6]}/item.htm?query=1"
        else:
            channel = f"channel-{chance.randrange(1000)}"
            url = f"https://www.nexmark.com/{channel}/{letters[:3]}/{letters[3:6]}/item.htm?query=1&channel_id={chance.randrange(1000)}"
        return auction, bidder, _price(chance), channel, url, moment, letters

    def _one_of(self, known: int, chance: random.Random, hot: float) -> int:
        """Return the id of a hot one, or of any of the last ones."""
        last = FIRST_ID + known - 1
        if chance.random() < hot:
            return max(FIRST_ID, last // HOT * HOT)
        return chance.randrange(max(FIRST_ID, last - HOT + 1), last + 1)


def _price(chance: random.Random) -> int:
    return round(10 ** (chance.random() * 6) * 100)
