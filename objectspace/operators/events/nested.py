"""Operators with inner sequences, each kept as named objects of its own: SelectMany and GroupBy."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from decimal import Decimal
from heapq import heapify, heappop, heappush
from operator import methodcaller
from typing import Any, ClassVar

from objectspace.operators.events.base import (
    Chain,
    EventOperator,
    Hand,
    attempt,
    checked_function,
    complete,
    flush,
    handing,
    told,
)

Make = Callable[..., EventOperator]


OPEN_INNER = 10_000
"""The number of inner sequences that stay open in memory; others are opened again when they are touched."""

_DECIMAL_NAN = Decimal("NaN")


class Nested(EventOperator):
    """Keeps inner sequences by number, with their keys; an inner sequence is opened when it is touched.

    Its operator is made when it begins, so a value that would begin one that cannot be made is refused.
    """

    _made_of: ClassVar[str] = "key"
    """What ``make`` is called with, in one word."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        _check_make(type(self).__name__, make, self._made_of)
        self._make = make
        self._opened: dict[int, Chain] = {}
        self._unopened: dict[int, Chain] = {}
        self._is_resumed = False

    @property
    def takes_time(self) -> bool:
        """Whether time alone can change anything in one of the inner sequences; before the operator is open, it may."""
        return type(self)._tick is not Nested._tick or self._has_timed()

    def _create(self) -> None:
        self._keys = self._object("dictionary", "inner")
        self._following = self._object("value", "following", 0)

    def _resume(self) -> None:
        self._let_go_inner()
        self._numbers: dict[Any, dict[int, None]] = {}
        self._timed: dict[int, float] | None = None
        """The inner sequences that time can change, and from when on; not known before anyone has asked."""
        self._wake: list[tuple[float, int]] = []
        """The same as a heap, and what no longer holds."""
        self._is_resumed = True
        for number, key in self._keys.items():
            self._numbers.setdefault(_one_nan(key), {})[number] = None

    def _let_go(self) -> None:
        super()._let_go()
        self._let_go_inner()
        self._is_resumed = False

    def _let_go_inner(self) -> None:
        for inner in (*self._opened.values(), *self._unopened.values()):
            inner._let_go()
        self._opened, self._unopened = {}, {}

    def _delete_more(self) -> None:
        """Delete the inner sequences; the objects of those whose operators cannot be made are found by name."""
        for number in list(self._keys):
            if self._can_make(number):
                self._inner(number).delete()
            else:
                for name in self._names_of(number):
                    self._space.delete(name)
        self._let_go_inner()
        self._numbers = {}
        self._is_resumed = False

    def _can_make(self, number: int) -> bool:
        """Return whether the operator of an inner sequence can be made."""
        try:
            self._opened.get(number) or self._made(number, self._keys[number])
        except Exception:
            return False
        return True

    def _names_of(self, *numbers: int) -> list[str]:
        """Return the names of all objects of inner sequences. Time: O(objects of the space)."""
        starts, length = {f"{self.name}/{number}/" for number in numbers}, len(self.name) + 1
        return [name for name in self._space if name[: name.find("/", length) + 1] in starts]

    def _start(self, key: Any) -> int:
        number: int = self._following.value
        self._of(key)  # A value that cannot be a key is refused before anything is changed.
        inner = self._made(number, key)
        is_timed = self._timed is not None and inner.takes_time
        self._following.value = number + 1
        self._keys[number] = key
        self._numbers.setdefault(_one_nan(key), {})[number] = None
        if is_timed:
            self._note_due(number, -math.inf)
        inner._claim(self._space, f"{self.name}/{number}")
        self._keep(self._unopened, number, inner)
        return number

    def _made(self, number: int, key: Any) -> Chain:
        """Return the operator of an inner sequence, which was made when it began, or is made now.

        Raises:
            TypeError: what ``make`` returns is not an operator.
            ValueError: it is in use elsewhere, or has several inputs.
        """
        if number in self._unopened:
            return self._unopened[number]
        made = self._make(key)
        if not isinstance(made, EventOperator):
            raise TypeError(f"{self._of_make(key)} {told(made)}: expected an operator, such as Average()")
        if made.inputs != 1:
            raise ValueError(
                f"{self._of_make(key)} {told(made)} with {made.inputs} inputs: expected one with a single input, as"
                " nothing could reach the others"
            )
        inner = made if isinstance(made, Chain) else Chain(made)
        other = inner._claimed_by_another(self._space, f"{self.name}/{number}")
        if other is not None:
            raise ValueError(f"{self._of_make(key)} one that is open as {other!r}: expected a new operator each time")
        return inner

    def _of_make(self, key: Any) -> str:
        return f"{type(self).__name__} {self.name!r}: make returned for the {self._made_of} {key!r:.80}"

    def _keep(self, kept: dict[int, Chain], number: int, inner: Chain) -> None:
        """Keep an operator in memory, and release the oldest if there are many."""
        kept[number] = inner
        if len(kept) > OPEN_INNER:
            kept.pop(next(iter(kept)))._let_go()

    def _take_back(self, numbers: list[int]) -> None:
        """Undo the beginning of the last inner sequences, none of which has taken anything."""
        # If they are many, some are open no longer; their operators may not be made again.
        let_go = [n for n in numbers if n in self._keys and n not in self._opened and n not in self._unopened]
        for name in self._names_of(*let_go) if let_go else ():
            self._space.delete(name)
        for number in numbers:
            if number in self._opened:
                self._opened[number].delete()
            if number in self._keys:
                self._forget(number)
        if numbers:
            self._following.value = numbers[0]

    def _takes_time(self, number: int) -> bool:
        """Return whether an inner sequence wants to hear of the time; it need not be opened for this.

        One that cannot be made hears of it if it has objects: the error is raised beside what the others give.
        """
        try:
            return (self._opened.get(number) or self._made(number, self._keys[number])).takes_time
        except Exception:
            return bool(self._names_of(number))

    def _has_timed(self) -> bool:
        """Return whether an inner sequence waits for the time; if the operator is not open, this is not known."""
        return not self._is_resumed or bool(self._waiting())

    def _waiting(self) -> dict[int, float]:
        """Return the inner sequences that time can change: all are asked once, then each that is given something."""
        if self._timed is None:
            self._timed = {}
            for number in self._keys:
                self._note_timed(number)
        return self._timed

    def _note_timed(self, number: int) -> None:
        """Note from when on an inner sequence has to hear of the time; one that is not open hears of it at once."""
        if self._timed is None:
            return
        if self._takes_time(number):
            self._note_due(number, self._opened[number]._wakes() if number in self._opened else -math.inf)
        else:
            self._timed.pop(number, None)

    def _note_due(self, number: int, due: float) -> None:
        assert self._timed is not None
        if self._timed.get(number) == due:
            return
        self._timed[number] = due
        heappush(self._wake, (due, number))
        if len(self._wake) > 2 * len(self._timed) + 64:
            self._wake = [(due, number) for number, due in self._timed.items()]
            heapify(self._wake)

    def _due_from(self) -> float:
        return self._first_due()

    def _first_due(self) -> float:
        """Return from when on an inner sequence has to hear of the time."""
        timed, wake = self._waiting(), self._wake
        while wake and timed.get(wake[0][1]) != wake[0][0]:
            heappop(wake)
        return wake[0][0] if wake else math.inf

    def _due_by(self, at: float) -> list[int]:
        """Return the inner sequences that are due; each is until it is asked."""
        due = set()
        while self._first_due() <= at:
            due.add(heappop(self._wake)[1])
        for number in due:
            self._waiting()[number] = -math.inf
            heappush(self._wake, (-math.inf, number))
        return sorted(due)

    def _of(self, key: Any) -> list[int]:
        """Return the numbers of the inner sequences of a key."""
        try:
            return list(self._numbers.get(_one_nan(key), ()))
        except TypeError as error:
            raise TypeError(
                f"{type(self).__name__} {self.name!r}: {key!r:.80} begins no inner sequence ({error}): use a number,"
                " text or a tuple of them"
            ) from None

    def _inner(self, number: int) -> Chain:
        if number not in self._opened:
            inner = self._made(number, self._keys[number])
            inner.open(self._space, f"{self.name}/{number}")
            self._unopened.pop(number, None)
            self._keep(self._opened, number, inner)
            self._note_timed(number)
        return self._opened[number]

    def _drop(self, number: int) -> None:
        """Delete an inner sequence that has ended, and forget it."""
        self._inner(number).delete()
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._opened.pop(number, None)
        if number in self._unopened:
            self._unopened.pop(number)._let_go()
        key = _one_nan(self._keys.pop(number))
        del self._numbers[key][number]
        if not self._numbers[key]:
            del self._numbers[key]
        if self._timed is not None:
            self._timed.pop(number, None)

    def _ask(self, errors: list[Exception], number: int, ask: Callable[..., list[Any]], *given: Any) -> list[Any]:
        """Return what comes out of an inner sequence, as :func:`attempt` does, and forget it if it has ended."""
        try:
            inner = self._inner(number)
        except Exception as error:
            errors.append(error)
            return []
        out = attempt(errors, inner, ask, *given)
        if inner.has_ended:
            self._drop(number)
        else:
            self._note_timed(number)
        return out

    def _tick(self, at: float) -> list[Any]:
        errors: list[Exception] = []
        return self._unless(errors, self._tell_all(errors, at))

    def _tell_all(self, errors: list[Exception], at: float) -> list[Any]:
        """Tell the time to the inner sequences that are due. Time: O(these · log n)."""
        return [one for number in self._due_by(at) for one in self._tell(errors, number, at)]

    def _tell(self, errors: list[Exception], number: int, at: float) -> list[Any]:
        return self._shown(self._keys[number], self._ask(errors, number, methodcaller("on_time", at)))

    def _close(self, errors: list[Exception], number: int) -> list[Any]:
        """End an inner sequence; one that raises stays, and can be ended again.

        One that cannot be made and has no objects ends: nothing is lost, because it has taken nothing.
        """
        known = len(errors)
        out = self._shown(self._keys[number], self._ask(errors, number, complete))
        if number in self._keys and len(errors) == known:
            self._drop(number)
        elif number in self._keys and number not in self._opened and not self._names_of(number):
            del errors[known:]
            self._forget(number)
        return out

    def _close_all(self) -> list[Any]:
        """End all inner sequences, and then the operator."""
        errors: list[Exception] = []
        out = [one for number in list(self._keys) for one in self._close(errors, number)]
        if not self._keys:
            self._end()
        return self._unless(errors, out)

    def _shown(self, key: Any, out: list[Any]) -> list[Any]:
        return out


class SelectMany(Nested):
    """What comes out of inner sequences, one of which begins with each value.

    A value begins an inner sequence and is its key; the values of the inner sequences of a key come through
    :meth:`on_inner`. The operator ends when its input has ended and no inner sequence is left.

    State: a dictionary of the inner sequences, a counter, and the objects of each. A value dirties 1 item and the
    length, the counter, and the objects of the new inner sequence; an inner value dirties what its sequence dirties.

    Args:
        make: a function of the value that returns the operator of its inner sequence, a new one each time.

    Raises:
        TypeError: ``make`` is not a function of the value.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.operators.events import Average, Take
    >>> chain = Chain(SelectMany(lambda x: Take(2)), Average(running=True))
    >>> chain.open(VolatileObjectSpace(), "means")
    >>> chain.on_next("x"), [chain.on_inner("x", n) for n in (1, 2, 3)]
    ([], [[1.0], [1.5], []])
    """

    _made_of: ClassVar[str] = "value"

    def _create(self) -> None:
        super()._create()
        self._is_over = self._object("value", "over", False)

    def on_inner(self, key: Any, value: Any, at: float | None = None) -> list[Any]:
        """Hand a value to the inner sequences of a key, and return what comes out."""
        return self._take(at, lambda _: self._each(key, self._ask, handing(at), value))

    def on_inner_completed(self, key: Any, at: float | None = None) -> list[Any]:
        """End the inner sequences of a key, and return what comes out."""
        return self._take(at, lambda _: self._each(key, self._close))

    def _each(self, key: Any, give: Callable[..., list[Any]], *given: Any) -> list[Any]:
        """Return what the inner sequences of a key give, and end if none is left."""
        errors: list[Exception] = []
        out = [one for number in self._of(key) for one in give(errors, number, *given)]
        self._end_where_over()
        return self._unless(errors, out)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        if not self._is_over.value:
            self._start(value)
        return []

    def _due_from(self) -> float:
        return self._first_due()  # Nothing but what an inner sequence does ends it.

    def _tell_all(self, errors: list[Exception], at: float) -> list[Any]:
        out = super()._tell_all(errors, at)
        self._end_where_over()
        return out

    def _finish(self, source: int) -> list[Any]:
        self._is_over.value = True
        self._end_where_over()
        return []

    def _end_where_over(self) -> None:
        if self._is_over.value and not self._keys:
            self._end()


class GroupBy(Nested):
    """Pairs of a key and what comes out of the inner sequence of the values with this key.

    An inner sequence that has ended begins again with the next value of its key. At the end all of them end.

    State: a dictionary of the inner sequences, a counter, and the objects of each. A value dirties what its inner
    sequence dirties; the first value of a key also 1 item and the length, and the counter.

    Args:
        key: the function of a value that gives its key.
        make: a function of a key that returns the operator of its inner sequence, a new one each time.

    Raises:
        TypeError: ``key`` is not a function, or ``make`` is not a function of the key.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.operators.events import Average
    >>> means = GroupBy(lambda n: n % 2, lambda key: Average(running=True))
    >>> means.open(VolatileObjectSpace(), "means")
    >>> [out for n in (1, 2, 5) for out in means.on_next(n)]
    [(1, 1.0), (0, 2.0), (1, 3.0)]
    """

    def __init__(self, key: Callable[[Any], Any], make: Make) -> None:
        super().__init__(make)
        self._key = checked_function("GroupBy", "key", key)

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        return self._into_group(value, handing(at))

    def _flushed(self, value: Any) -> list[Any]:
        return self._into_group(value, flush)

    def _into_group(self, value: Any, hand: Hand) -> list[Any]:
        key = self._key(value)
        errors: list[Exception] = []
        known = self._of(key)
        begun = [] if known else [self._start(key)]
        out = self._shown(key, self._ask(errors, (known or begun)[0], hand, value))
        if errors and begun:  # A value that is refused begins no group, and nothing comes out of it.
            self._take_back(begun)
            out = []
        return self._unless(errors, out)

    def _finish(self, source: int) -> list[Any]:
        return self._close_all()

    def _shown(self, key: Any, out: list[Any]) -> list[Any]:
        return [(key, value) for value in out]


def _check_make(kind: str, make: Any, what: str) -> None:
    """Refuse what cannot be called with an inner sequence's key, and a class, which takes the key for a setting."""
    expected = f"expected a function of the {what} that returns an operator, such as lambda {what}: {_example(make)}"
    if isinstance(make, type) or not callable(make):
        raise TypeError(f"{kind}: make is {told(make)}: {expected}")
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return  # Some functions written in C do not say.
    if not _takes(signature, None):
        parameters = signature.replace(return_annotation=inspect.Signature.empty)
        raise TypeError(f"{kind}: make has the parameters {parameters}: {expected}")


def _example(make: Any) -> str:
    if not isinstance(make, type) or not issubclass(make, EventOperator):
        return "Average()"
    return f"{make.__name__}({'' if _takes(inspect.signature(make)) else '...'})"


def _takes(signature: inspect.Signature, *arguments: Any) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def _one_nan(key: Any) -> Any:
    """Return a key that equals itself after recovery too: Python finds a NaN only if it is the same object."""
    if isinstance(key, tuple):
        return tuple(map(_one_nan, key))
    if isinstance(key, Decimal):
        return _DECIMAL_NAN if key.is_qnan() else key
    if isinstance(key, complex) and key != key:
        return complex, _one_nan(key.real), _one_nan(key.imag)
    return math.nan if isinstance(key, float) and key != key else key
