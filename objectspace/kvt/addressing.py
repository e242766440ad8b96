"""Where a key lies: its table key, byte for byte as PDP-39 says, and its partition.

With a family the table key is the 2-byte length of the family in UTF-8, the family, and the key; without one it is the
*negated* 2-byte length of the key, and the key. So no two addresses are equal, and a family is one range of bytes. The
exception is a length of zero, which is its own negative, so the empty family is refused.

All keys of a family lie in one partition. It is ``(xxh64(route bytes, seed 42) * partitions) >> 64``, which Spark SQL
computes as well: :func:`partition_sql`.
"""

from __future__ import annotations

from xxhash import xxh64_intdigest

MAX_LENGTH = 8190
"""How many bytes a key may have together with its family."""

FAMILY_LESS = b"\x80"
"""Every table key of a family is less than this; those without a family, except for the empty key, are greater."""

_SEED = 42

_BYTES = (bytes, bytearray, memoryview)


def family_prefix(key_family: str) -> bytes:
    """Return the bytes that the table keys of a family begin with, and no others.

    Raises:
        TypeError: the family is not text.
        ValueError: it is empty, too long, or not valid Unicode.

    >>> family_prefix("abc").hex()
    '0003616263'
    """
    if not isinstance(key_family, str):
        raise TypeError(f"the key family is {key_family!r}: expected text")
    if not key_family:
        raise ValueError("the key family is empty: give it a name, or None for keys without a family")
    try:
        name = key_family.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the key family {key_family!r} holds a lone surrogate: give valid text") from None
    if len(name) > MAX_LENGTH:
        raise ValueError(f"the key family has {len(name)} bytes: at most {MAX_LENGTH} together with the key")
    return len(name).to_bytes(2, "big") + name


def table_key(key: bytes, key_family: str | None = None) -> bytes:
    """Return the table key of a key.

    Args:
        key: the serialized key.
        key_family: its family, or ``None`` for none.

    Raises:
        TypeError: the key is not bytes, or the family not text.
        ValueError: the family is refused, or family and key together exceed 8,190 bytes.

    >>> table_key(b"def", "abc").hex(), table_key(b"abc").hex()
    ('0003616263646566', 'fffd616263')
    """
    if not isinstance(key, _BYTES):
        raise TypeError(f"the key is {key!r:.80}: expected bytes")
    prefix = (-len(key) & 0xFFFF).to_bytes(2, "big") if key_family is None else family_prefix(key_family)
    return joined(prefix, key)


def joined(prefix: bytes, key: bytes) -> bytes:
    """Return the table key made of a prefix with its length, and a key.

    Raises:
        ValueError: family and key together exceed 8,190 bytes.
    """
    address = prefix + key
    if len(address) > MAX_LENGTH + 2:
        raise ValueError(
            f"key family and key have {len(address) - 2} bytes: at most {MAX_LENGTH} together; shorten the key"
        )
    return address


def route_bytes(key: bytes, key_family: str | None = None) -> bytes:
    """Return the bytes whose hash is the partition: the family prefix, or the table key if there is no family.

    Raises:
        TypeError: the key is not bytes, or the family not text.
        ValueError: the family is refused, or family and key together exceed 8,190 bytes.
    """
    address = table_key(key, key_family)
    return address if key_family is None else family_prefix(key_family)


def partition_of(key: bytes, key_family: str | None, partition_count: int) -> int:
    """Return the index of the partition of a key, from 0.

    Raises:
        TypeError: the key is not bytes, or the family not text.
        ValueError: there is no partition, or family and key are refused.

    >>> partition_of(b"key", "f", 4), partition_of(b"key", None, 4)
    (2, 0)
    """
    return partition_of_route(route_bytes(key, key_family), _checked_count(partition_count))


def partition_of_route(route: bytes, partition_count: int) -> int:
    """Return the index of the partition for route bytes."""
    return xxh64_intdigest(route, _SEED) * partition_count >> 64


def split_table_key(address: bytes) -> tuple[str | None, bytes]:
    """Return family and key of a table key.

    Raises:
        ValueError: it is shorter than it says, its family is not UTF-8, or its key has a different length than it says.

    >>> split_table_key(bytes.fromhex("0003616263646566"))
    ('abc', b'def')
    """
    start = key_start(address) if len(address) > 1 else 2
    if len(address) < start:
        raise ValueError(f"{address!r:.80} is no table key: it ends before its key begins, at byte {start}")
    if start > 2:
        return address[2:start].decode(), address[start:]
    if (len(address) - 2 + int.from_bytes(address[:2], "big")) & 0xFFFF:
        raise ValueError(f"{address!r:.80} is no table key: its first 2 bytes are not the negated length of its key")
    return None, address[2:]


def key_start(address: bytes) -> int:
    """Return where the key begins in a table key: at 2 if it has no family."""
    length = address[0] << 8 | address[1]
    return 2 if length > MAX_LENGTH else 2 + length


def successor(prefix: bytes) -> bytes:
    """Return the least bytes greater than all that begin with ``prefix``, which holds a byte below FF."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def partition_sql(key: str, key_family: str | None, partition_count: int) -> str:
    """Return the Spark SQL expression for the partition of a row, so that no row passes through Python to be routed.

    Args:
        key: an SQL expression for the serialized key, of type binary.
        key_family: one for the family, of type string; NULL in a row, or ``None`` here, means no family.
        partition_count: the partitions of the table.

    Raises:
        ValueError: there is none.

    >>> partition_sql("key", None, 4)[:60]
    'shiftrightunsigned(shiftrightunsigned(xxhash64(concat(unhex('
    """
    _checked_count(partition_count)
    route = f"concat(unhex(right(hex(65536L - octet_length({key})), 4)), {key})"
    if key_family is not None:
        family = f"concat(unhex(lpad(hex(octet_length({key_family})), 4, '0')), cast({key_family} AS BINARY))"
        route = f"CASE WHEN {key_family} IS NULL THEN {route} ELSE {family} END"
    digest, count = f"xxhash64({route})", f"{partition_count}L"
    # (digest * count) >> 64 in 64 bits: the two halves of the digest one by one, carrying from the lower.
    carried = f"shiftrightunsigned(({digest} & 4294967295L) * {count}, 32)"
    return f"shiftrightunsigned(shiftrightunsigned({digest}, 32) * {count} + {carried}, 32)"


def _checked_count(partition_count: int) -> int:
    if partition_count < 1:
        raise ValueError(f"the partition count is {partition_count}: expected that of a table, 1 or more")
    return partition_count
