"""The queries of Nexmark as pipelines, each with the SQL that gives the same answer as a batch.

One of the 23 is missing: q12 counts by the time of the machine, so that it has no answer to compare with. The SQL is in
the dialect of DuckDB; columns are named as in the generator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from objectspace.operators import Stream, avg, call, col, count, lit, max_, min_, sum_, when

Streams = Mapping[str, Stream]

RATE = Decimal("0.908")
"""Euros for a dollar."""


GAP = timedelta(seconds=10)
"""After how long without a bid a session of q11 is over."""


@dataclass(frozen=True)
class Query:
    """One query.

    Args:
        build: makes the stream of its answer from the sources ``person``, ``auction``, ``bid`` and ``side``.
        sql: the same as a batch.
    """

    build: Callable[[Streams], Stream]
    sql: str


def _q3(s: Streams) -> Stream:
    sellers = s["person"].filter(col("state").is_in(["OR", "ID", "CA"]))
    sold = s["auction"].filter(col("category") == 10)
    return sold.join(sellers, on=[("seller", "id")]).select("name", "city", "state", "id")


def _closed(s: Streams) -> Stream:
    """Return the bids on each auction while it was open."""
    in_time = (col("date_time_right") >= col("date_time")) & (col("date_time_right") <= col("expires"))
    return s["auction"].join(s["bid"], on=[("id", "auction")], where=in_time)


def _q4(s: Streams) -> Stream:
    final = _closed(s).group_by("id", "category").agg(final=max_("price"))
    return final.group_by("category").agg(mean=avg("final"))


def _q5(s: Streams) -> Stream:
    window = s["bid"].window("date_time", timedelta(seconds=10), hop=timedelta(seconds=2))
    counts = window.group_by("auction", "window_start").agg(num=count())
    most = counts.group_by("window_start").agg(most=max_("num"))
    hot = counts.join(most, on="window_start", where=col("num") >= col("most"))
    return hot.select("auction", "num", "window_start")


def _q6(s: Streams) -> Stream:
    won = _closed(s).group_by("id").top_n(1, order_by=["price desc", "date_time_right"])
    return won.group_by("seller").top_n(10, order_by=["date_time_right desc"]).group_by("seller").agg(mean=avg("price"))


def _q7(s: Streams) -> Stream:
    window = s["bid"].window("date_time", timedelta(seconds=10))
    highest = window.group_by("window_start").agg(highest=max_("price"))
    best = window.join(highest, on=["window_start", ("price", "highest")])
    return best.select("auction", "price", "bidder", "date_time", "extra")


def _q8(s: Streams) -> Stream:
    new = s["person"].window("date_time", timedelta(seconds=10)).group_by("id", "name", "window_start").agg(n=count())
    sold = s["auction"].window("date_time", timedelta(seconds=10)).group_by("seller", "window_start").agg(n=count())
    both = new.join(sold, on=[("id", "seller"), "window_start"])
    return both.select("id", "name", "window_start")


def _q9(s: Streams) -> Stream:
    won = _closed(s).group_by("id").top_n(1, order_by=["price desc", "date_time_right"])
    return won.select("id", "item", "seller", "category", "bidder", "price", won="date_time_right")


def _q10(s: Streams) -> Stream:
    at = col("date_time")
    return s["bid"].select(
        "auction", "bidder", "price", "date_time", day=at.strftime("%Y-%m-%d"), time=at.strftime("%H:%M")
    )


def _q11(s: Streams) -> Stream:
    sessions = s["bid"].sessions("date_time", GAP, by="bidder")
    counts = sessions.group_by("bidder", "session_start").agg(bids=count(), last=max_("date_time"))
    return counts.select("bidder", "bids", "session_start", session_end=col("last") + GAP)


def _q13(s: Streams) -> Stream:
    keyed = s["bid"].with_columns(key=col("auction") % 50)
    return keyed.join(s["side"], on="key").select("auction", "bidder", "price", "date_time", "value")


def _q14(s: Streams) -> Stream:
    price, hour = col("price") * RATE, col("date_time").hour()
    kind = when(
        (hour >= 8) & (hour <= 18), lit("dayTime"), when((hour <= 6) | (hour >= 20), lit("nightTime"), lit("otherTime"))
    )
    found = s["bid"].filter((price > 1_000_000) & (price < 50_000_000))
    letters = call(_count_c, "int64", "extra", nullable=False)
    return found.select("auction", "bidder", "date_time", "extra", price=price, kind=kind, letters=letters)


def _ranked(stream: Stream, *names: str) -> Stream:
    """Count bids, bidders and auctions of a group, in all and by three ranks of price."""
    ranks = {
        "rank1": col("price") < 10_000,
        "rank2": (col("price") >= 10_000) & (col("price") < 1_000_000),
        "rank3": col("price") >= 1_000_000,
    }
    calls = {"bids": count(), "bidders": count("bidder", distinct=True), "auctions": count("auction", distinct=True)}
    for name, rank in ranks.items():
        calls[f"bids_{name}"] = count(filter=rank)
        calls[f"bidders_{name}"] = count("bidder", distinct=True, filter=rank)
        calls[f"auctions_{name}"] = count("auction", distinct=True, filter=rank)
    return stream.group_by(*names).agg(**calls)


_RANKED = """count(*), count(DISTINCT bidder), count(DISTINCT auction)""" + "".join(
    f", count(*) FILTER ({rank}), count(DISTINCT bidder) FILTER ({rank}), count(DISTINCT auction) FILTER ({rank})"
    for rank in ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
)


def _q15(s: Streams) -> Stream:
    return _ranked(s["bid"].with_columns(day=col("date_time").cast("date")), "day")


def _q16(s: Streams) -> Stream:
    return _ranked(s["bid"].with_columns(day=col("date_time").cast("date")), "channel", "day")


def _q17(s: Streams) -> Stream:
    price = {"least": min_("price"), "most": max_("price"), "mean": avg("price"), "total": sum_("price")}
    low, high = col("price") < 10_000, col("price") >= 1_000_000
    daily = s["bid"].group_by("auction", day=col("date_time").cast("date"))
    return daily.agg(bids=count(), low=count(filter=low), high=count(filter=high), **price)


def _q18(s: Streams) -> Stream:
    last = s["bid"].group_by("bidder", "auction").top_n(1, order_by=["date_time desc"])
    return last.select("auction", "bidder", "price", "date_time")


def _q19(s: Streams) -> Stream:
    best = s["bid"].group_by("auction").top_n(10, order_by=["price desc", "date_time"])
    return best.select("auction", "bidder", "price", "date_time")


def _q20(s: Streams) -> Stream:
    sold = s["auction"].filter(col("category") == 10)
    both = s["bid"].join(sold, on=[("auction", "id")])
    return both.select("auction", "bidder", "price", "date_time", "item", "seller")


def _q21(s: Streams) -> Stream:
    found = s["bid"].with_columns(channel_id=call(_channel_id, "string", "channel", "url"))
    return found.filter(col("channel_id").is_not_null()).select("auction", "bidder", "price", "channel", "channel_id")


def _q22(s: Streams) -> Stream:
    parts = {f"dir{place}": col("url").split_part("/", place + 2) for place in (1, 2, 3)}
    return s["bid"].select("auction", "bidder", "price", "channel", **parts)


def _count_c(text: str) -> int:
    return text.count("c")


def _channel_id(channel: str, url: str) -> str | None:
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}.get(channel.lower())
    found = None if known else re.search("(?:&|^)channel_id=([^&]*)", url)
    return known or (found[1] if found else None)


_WON = """
    SELECT a.id, item, seller, category, bidder, price, b.date_time AS won,
           row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b.date_time) AS place
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
"""
_SECONDS = "time_bucket(INTERVAL {} SECOND, date_time)"

QUERIES: dict[str, Query] = {
    "q0": Query(
        lambda s: s["bid"].select("auction", "bidder", "price", "date_time", "extra"),
        "SELECT auction, bidder, price, date_time, extra FROM bid",
    ),
    "q1": Query(
        lambda s: s["bid"].select("auction", "bidder", price=col("price") * RATE, at="date_time"),
        "SELECT auction, bidder, price * 0.908, date_time FROM bid",
    ),
    "q2": Query(
        lambda s: s["bid"].filter(col("auction") % 123 == 0).select("auction", "price"),
        "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    ),
    "q3": Query(
        _q3,
        "SELECT name, city, state, a.id FROM auction a JOIN person p ON a.seller = p.id"
        " WHERE category = 10 AND state IN ('OR', 'ID', 'CA')",
    ),
    "q4": Query(
        _q4,
        "SELECT category, avg(final) FROM (SELECT a.id, category, max(price) AS final FROM auction a JOIN bid b"
        " ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY ALL) GROUP BY category",
    ),
    "q5": Query(
        _q5,
        "SELECT auction, num, start FROM (SELECT *, max(num) OVER (PARTITION BY start) AS most FROM (SELECT auction,"
        f" {_SECONDS.format(2)} - back * INTERVAL 2 SECOND AS start, count(*) AS num FROM bid, range(5) AS r(back)"
        " GROUP BY ALL)) WHERE num >= most",
    ),
    "q6": Query(
        _q6,
        f"SELECT seller, avg(price) FROM (SELECT *, row_number() OVER (PARTITION BY seller ORDER BY won DESC) AS recent"
        f" FROM ({_WON}) WHERE place = 1) WHERE recent <= 10 GROUP BY seller",
    ),
    "q7": Query(
        _q7,
        "SELECT auction, price, bidder, date_time, extra FROM (SELECT *, max(price) OVER (PARTITION BY"
        f" {_SECONDS.format(10)}) AS highest FROM bid) WHERE price = highest",
    ),
    "q8": Query(
        _q8,
        f"SELECT DISTINCT p.id, p.name, p.start FROM (SELECT *, {_SECONDS.format(10)} AS start FROM person) p"
        f" JOIN (SELECT *, {_SECONDS.format(10)} AS start FROM auction) a ON p.id = a.seller AND p.start = a.start",
    ),
    "q9": Query(_q9, f"SELECT id, item, seller, category, bidder, price, won FROM ({_WON}) WHERE place = 1"),
    "q10": Query(
        _q10,
        "SELECT auction, bidder, price, date_time, strftime(date_time, '%Y-%m-%d'), strftime(date_time, '%H:%M')"
        " FROM bid",
    ),
    "q11": Query(
        _q11,
        "SELECT bidder, count(*), min(date_time), max(date_time) + INTERVAL 10 SECOND FROM (SELECT *, sum(begins) OVER"
        " (PARTITION BY bidder ORDER BY date_time) AS number FROM (SELECT *, CASE WHEN date_time - lag(date_time) OVER"
        " (PARTITION BY bidder ORDER BY date_time) < INTERVAL 10 SECOND THEN 0 ELSE 1 END AS begins FROM bid))"
        " GROUP BY bidder, number",
    ),
    "q13": Query(_q13, "SELECT auction, bidder, price, date_time, value FROM bid JOIN side ON auction % 50 = side.key"),
    "q14": Query(
        _q14,
        "SELECT auction, bidder, date_time, extra, price * 0.908, CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN"
        " 'dayTime' WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END,"
        " length(extra) - length(replace(extra, 'c', '')) FROM bid"
        " WHERE price * 0.908 > 1000000 AND price * 0.908 < 50000000",
    ),
    "q15": Query(_q15, f"SELECT date_time::DATE, {_RANKED} FROM bid GROUP BY date_time::DATE"),
    "q16": Query(_q16, f"SELECT channel, date_time::DATE, {_RANKED} FROM bid GROUP BY channel, date_time::DATE"),
    "q17": Query(
        _q17,
        "SELECT auction, date_time::DATE, count(*), count(*) FILTER (price < 10000),"
        " count(*) FILTER (price >= 1000000), min(price), max(price), avg(price), sum(price)"
        " FROM bid GROUP BY auction, date_time::DATE",
    ),
    "q18": Query(
        _q18,
        "SELECT auction, bidder, price, date_time FROM bid"
        " QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1",
    ),
    "q19": Query(
        _q19,
        "SELECT auction, bidder, price, date_time FROM bid"
        " QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) <= 10",
    ),
    "q20": Query(
        _q20,
        "SELECT auction, bidder, price, b.date_time, item, seller FROM bid b JOIN auction a ON b.auction = a.id"
        " WHERE category = 10",
    ),
    "q21": Query(
        _q21,
        "SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'"
        " WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END"
        " AS channel_id FROM bid WHERE channel_id <> ''",
    ),
    "q22": Query(
        _q22,
        "SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),"
        " split_part(url, '/', 6) FROM bid",
    ),
}
