"""Receipts: what an epoch wrote, and what the whole state would have been."""

from __future__ import annotations

from checkpoint.chain import Chain, Location, receipts

from .chain_helpers import Publisher


def test_receipts_follow_the_state(location: Location, publish: Publisher) -> None:
    publish.has_length = False
    chain = Chain.open_or_create(location, 2)
    publish(chain, {"a": 1, "b": 22}, {"c": 333})
    publish(chain, {"b": 4444}, {})
    publish(chain, {"a": None}, {"d": 5})
    found = list(receipts(Chain.open(location)))
    assert [(receipt.epoch, receipt.batch) for receipt in found] == [(1, 0), (2, 1), (3, 2)]
    assert [receipt.slots for receipt in found] == [3, 1, 2]
    assert [receipt.state_slots for receipt in found] == [3, 3, 3]
    assert [receipt.bytes for receipt in found[1:]] == [len("b4444"), len("a" + "d5")]
    names = 2 * len("countsDictionary")
    assert [receipt.state_bytes - names for receipt in found] == [9, 11, len("b4444" + "c333" + "d5")]


def test_a_full_run_does_not_count_twice(location: Location, publish: Publisher) -> None:
    publish.has_length = False
    chain = Chain.open_or_create(location, 1)
    for number in range(9):
        publish(chain, {"a": number}, full_after=2)
    assert {receipt.state_bytes for receipt in receipts(chain)} == {len("countsDictionary") + len("a1")}
