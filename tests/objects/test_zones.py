"""Times in zones as keys, where clocks show a time twice or never: Python compares them by what the clocks show."""

from __future__ import annotations

import shutil
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from checkpoint import CheckpointStore
from objectspace import ObjectSpaceError, PersistedObjectSpace, UnencodableValueError, keys
from objectspace.objects import limits

BERLIN = ZoneInfo("Europe/Berlin")
FIRST = datetime(2013, 10, 27, 2, 30, tzinfo=BERLIN)
SECOND = FIRST.replace(fold=1)
TIMES = [
    datetime(2013, month, day, hour, minute, tzinfo=BERLIN, fold=fold)
    for month, day in ((3, 31), (10, 27))
    for hour, minute, fold in product((1, 2, 3), (0, 30, 59), (0, 1))
]
"""Times around the hours that are passed over and repeated; of each two that are equal the second has ``fold=1``."""


@pytest.fixture(params=["whole", "paged"])
def space(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PersistedObjectSpace:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 1000 if request.param == "whole" else 0)
    monkeypatch.setattr(limits, "PROMOTE_SHARE", 0)
    return PersistedObjectSpace(CheckpointStore(":memory:"))


def again(space: PersistedObjectSpace) -> PersistedObjectSpace:
    space.checkpoint()
    return PersistedObjectSpace(space.store)


@pytest.mark.parametrize("wrap", [lambda key: key, lambda key: ("a", key), lambda key: frozenset({key})])
def test_the_second_time_that_a_clock_shows_is_the_key_of_the_first(space: PersistedObjectSpace, wrap: Any) -> None:
    first, second = wrap(FIRST), wrap(SECOND)
    space.create_dictionary("d").update({first: 1, "other": 0})
    space.create_set("s").update([first, "other"])
    space = again(space)
    assert space.get("d")[second] == 1
    space.get("d")[second] = 2
    space.get("s").add(second)
    space = again(space)
    assert space.get("d") == {first: 2, "other": 0}
    assert list(space.get("s")) == [first, "other"]
    space.get("s").discard(second)
    del space.get("d")[second]
    assert [*again(space).get("s"), *space.get("d")] == ["other", "other"]


@pytest.mark.parametrize("wrap", [lambda key: key, lambda key: (1, key, 2)])
def test_sorted_objects_have_the_order_of_python(space: PersistedObjectSpace, wrap: Any) -> None:
    times = list(map(wrap, TIMES))
    clear = [key for key in times if keys.keeps_order(key)]
    assert 0 < len(clear) < len(times)
    space.create_sorted_set("some").update(clear[::-1])
    space.create_sorted_set("all").update(times[::-1])
    space = again(space)
    for name, expected in (("some", sorted(set(clear))), ("all", sorted(set(times)))):
        found = space.get(name)
        assert list(found) == expected
        for bound in times:
            assert list(found.irange(bound)) == [key for key in expected if key >= bound]
            assert list(found.irange(None, bound, (True, False))) == [key for key in expected if key < bound]
        found._check()


def test_a_time_that_no_clock_shows_is_another_key_than_the_moment_that_it_is(space: PersistedObjectSpace) -> None:
    never = datetime(2013, 3, 31, 2, 30, tzinfo=BERLIN)
    shown = never.replace(hour=3)
    assert never.timestamp() == shown.timestamp()
    times = [never, shown, (never, "a"), (shown, "a"), never.replace(tzinfo=ZoneInfo("Europe/Paris"))]
    space.create_dictionary("d").update({key: place for place, key in enumerate(times)})
    space = again(space)
    for place, key in enumerate(times):
        assert space.get("d")[key] == place
        space.get("d")[key] = -place
    assert again(space).get("d") == {key: -place for place, key in enumerate(times)}


@pytest.mark.parametrize("kind", ["dictionary", "set", "sorted_dictionary", "sorted_set"])
@pytest.mark.parametrize("saves", [1, 2])
def test_a_time_that_a_clock_shows_twice_is_another_key_than_the_moment_that_it_is(
    space: PersistedObjectSpace, kind: str, saves: int
) -> None:
    moment = FIRST.astimezone(UTC)
    assert moment != FIRST, "as Python has it"
    made = getattr(space, f"create_{kind}")("d")
    for key in (moment, FIRST, FIRST.astimezone(ZoneInfo("Europe/Paris"))):
        if "set" in kind:
            made.add(key)
        else:
            made[key] = key.isoformat()
        if saves > 1:
            space.checkpoint()
    space = again(space)
    found = space.get("d")
    found._check()
    assert {key.isoformat() for key in found} == {moment.isoformat(), FIRST.isoformat()}
    assert len(found) == 3
    found.pop(FIRST) if "dictionary" in kind else found.remove(FIRST)
    assert FIRST not in again(space).get("d")
    assert moment in space.get("d")


def test_a_time_that_an_older_version_took_for_its_moment_is_read_as_that(
    space: PersistedObjectSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = FIRST.astimezone(UTC)
    with monkeypatch.context() as old:
        old.setitem(keys._BODIES, datetime, lambda key: ("aware", keys._datetime(key)[1][:16]))
        space.create_dictionary("d")[FIRST] = 1
        space = again(space)
    assert space.get("d").copy() == {moment: 1}
    space.get("d")[FIRST] = 2
    assert again(space).get("d").copy() == {moment: 1, FIRST: 2}


class Local(tzinfo):
    """A zone of a user, whose clocks show the hour after two o'clock twice on each day."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        assert when is not None
        return timedelta(hours=2 if when.hour < 2 or (when.hour == 2 and not when.fold) else 1)

    def dst(self, when: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, when: datetime | None) -> str:
        return "local"


@pytest.mark.parametrize("zone", [Local(), ZoneInfo.no_cache("Europe/Berlin")], ids=["a user's", "not cached"])
@pytest.mark.parametrize("wrap", [lambda key: key, lambda key: ("a", key)])
def test_a_time_shown_twice_is_no_key_in_a_zone_that_is_not_stored(
    space: PersistedObjectSpace, zone: Any, wrap: Any
) -> None:
    twice, once = datetime(2013, 10, 27, 2, 30, tzinfo=zone), datetime(2013, 10, 27, 5, 30, tzinfo=zone)
    d = space.create_dictionary("d")
    d[wrap(once)] = 1
    space.checkpoint()
    d[wrap(twice)] = 2
    with pytest.raises(UnencodableValueError, match="show this time twice or never"):
        space.checkpoint()
    del d[wrap(twice)]
    assert again(space).get("d").copy() == {wrap(once.astimezone(UTC)): 1}


@pytest.fixture
def change_rules(tmp_path: Path) -> Iterator[Callable[[str], ZoneInfo]]:
    """Return what gives the zone X/Y other rules, as another tzdata does."""
    path = zoneinfo.TZPATH
    (tmp_path / "X").mkdir()
    zoneinfo.reset_tzpath([str(tmp_path), *path])

    def _change(like: str) -> ZoneInfo:
        known = next(Path(folder) / like for folder in path if (Path(folder) / like).exists())
        shutil.copy(known, tmp_path / "X" / "Y")
        ZoneInfo.clear_cache(only_keys=["X/Y"])
        return ZoneInfo("X/Y")

    yield _change
    zoneinfo.reset_tzpath(path)
    ZoneInfo.clear_cache(only_keys=["X/Y"])


def test_a_key_whose_zone_has_other_rules_now_is_the_moment_that_it_was(
    space: PersistedObjectSpace, change_rules: Callable[[str], ZoneInfo]
) -> None:
    key = datetime(2027, 7, 1, 9, tzinfo=change_rules("America/Chicago"))
    moment = key.astimezone(UTC)
    for name in ("dictionary", "sorted_dictionary"):
        getattr(space, f"create_{name}")(name)[key] = "old"
    space.create_dictionary("pairs")[key, 1] = "old"
    space.checkpoint()
    key = key.replace(tzinfo=change_rules("America/Mexico_City"))
    assert key != moment
    space = PersistedObjectSpace(space.store)
    for name in ("dictionary", "sorted_dictionary"):
        d = space.get(name)
        assert (key in d, moment in d, list(d)) == (False, True, [moment])
        d[key] = "new"
    with pytest.raises(ObjectSpaceError, match=r"the rules of the zone X/Y are not those that .*; nothing is lost"):
        list(space.get("pairs").items())
    space = again(space)
    for name in ("dictionary", "sorted_dictionary"):
        space.get(name)._check()
        assert space.get(name).copy() == {moment: "old", key: "new"}
        del space.get(name)[key], space.get(name)[moment]
    assert [*again(space).get("dictionary"), *space.get("sorted_dictionary")] == []


def test_a_zone_that_this_machine_does_not_know_is_told_and_nothing_is_called_damaged(
    space: PersistedObjectSpace, change_rules: Callable[[str], ZoneInfo], tmp_path: Path
) -> None:
    zone = change_rules("Europe/Berlin")
    space.create_list("l").append(datetime(2027, 7, 1, 9, tzinfo=zone))
    space.checkpoint()
    (tmp_path / "X" / "Y").unlink()
    ZoneInfo.clear_cache(only_keys=["X/Y"])
    with pytest.raises(ObjectSpaceError, match=r"the zone X/Y is stored .* install tzdata.*nothing is lost"):
        list(PersistedObjectSpace(space.store).get("l"))
    space.create_value("v").value = datetime(2027, 7, 1, 9, tzinfo=zone)
    with pytest.raises(UnencodableValueError, match="this machine knows no zone 'X/Y'"):
        space.checkpoint()


def test_a_second_time_that_an_older_version_told_from_the_first_is_read(
    space: PersistedObjectSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _of_old(key: datetime) -> tuple[str, bytes]:
        return "aware", keys._microseconds(key.astimezone(UTC).replace(tzinfo=None) - keys._EPOCH)

    with monkeypatch.context() as old:
        old.setitem(keys._BODIES, datetime, _of_old)
        space.create_dictionary("d").update({SECOND: 1, (SECOND, "a"): 2})
        space.create_set("s").add(SECOND)
        space.create_dictionary("of", of=list)[SECOND] = [3]
        space = again(space)
    moment = FIRST.astimezone(UTC) + timedelta(hours=1)
    assert space.get("d").copy() == {moment: 1, (moment, "a"): 2}
    assert [list(space.get("s")), space.get("of").copy()] == [[moment], {moment: [3]}]
    space.get("d")[moment] = 4
    del space.get("d")[moment, "a"]
    space.get("s").discard(moment)
    space.get("of")[moment].append(5)
    space = again(space)
    assert [space.get("d").copy(), list(space.get("s")), space.get("of").copy()] == [{moment: 4}, [], {moment: [3, 5]}]


@pytest.mark.parametrize("name", ["Europe", "X" * 300, "../x", "a\0b"])
def test_a_zone_of_a_name_that_is_none_is_refused_and_other_edits_are_saved(
    space: PersistedObjectSpace, name: str
) -> None:
    with resources.files("tzdata.zoneinfo.Europe").joinpath("Berlin").open("rb") as file:
        zone = ZoneInfo.from_file(file, key=name)
    d = space.create_dictionary("d")
    d.update({1: datetime(2024, 5, 5, tzinfo=zone), 2: "other"})
    with pytest.raises(UnencodableValueError, match="this machine knows no zone"):
        space.checkpoint()
    d[1] = 0
    assert again(space).get("d").copy() == {1: 0, 2: "other"}
