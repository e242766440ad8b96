"""What event operators have in common: values in, values out, and persisted objects of their own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Integral
from operator import methodcaller
from typing import Any, ClassVar

from checkpoint.errors import not_copied
from objectspace.codec import encode
from objectspace.operators.base import not_open
from objectspace.operators.events.periods import plain_time
from objectspace.operators.prompt import ShownAtPrompt
from objectspace.part import SpacePart, in_whole
from objectspace.space import ObjectSpace

_ENDED = "ended"

_HELD = "$held"

_TAKEN_ROLES = {_ENDED: "that it has ended", _HELD: "what an error holds back"}

Hand = Callable[["EventOperator", Any], list[Any]]
"""Hands a value to an operator, and returns what comes out."""


def _is_told(name: str) -> bool:
    """Return whether a method of that name may do something at any time, or says when."""
    return name in ("on_time", "_take", "_tell_all", "_due_from") or name.startswith("_tick")


class EventOperator(ShownAtPrompt, ABC):
    """Something that takes single values, gives single values, and keeps its state in persisted objects.

    An operator is opened on a space under a name, with which the names of its objects begin. What a value changes is
    saved with the next checkpoint of the space, and an operator that is opened again continues from there. When it
    ends, it deletes its objects except for one value, which says that it has ended until :meth:`delete`. Time comes
    with the values: no operator looks at a clock.

    A class of your own implements :meth:`_next`, and whichever it needs of :meth:`_create`, :meth:`_resume`,
    :meth:`_tick`, :meth:`_flushed` and :meth:`_finish`. They return what comes out as a list, or ``None`` for nothing.
    With :meth:`_due_from` beside its :meth:`_tick`, many inner sequences cost no more than those of them that are due.
    Objects come from ``self._object(kind, role)``, where the roles ``"ended"`` and ``"$held"`` are taken.

    Source: the operators of Nuqleon's reactive engine.
    """

    inputs: ClassVar[int] = 1
    """The number of inputs, which are numbered from 0."""

    _claimed: tuple[ObjectSpace | SpacePart, str] | None = None
    """The space and the name that its objects are for, until they are deleted or the operator is released."""

    _says_when_due: ClassVar[bool] = True
    """Whether what :meth:`_due_from` says is said of what the class does then, not of what a base of it would do."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Of the class and its bases, also those that are no operators, the first that has a part in it decides.
        own = (vars(one) for one in cls.__mro__)
        cls._says_when_due = next("_due_from" in names for names in own if any(map(_is_told, names)))

    def __init__(self) -> None:
        self._space: ObjectSpace | SpacePart
        self.name = ""
        self._owned: list[str] = []
        self._held: list[Any] = []
        self._came_out: list[Any] = []
        self.has_ended = False

    def open(self, space: ObjectSpace | SpacePart, name: str) -> None:
        """Create the objects under a name, or find them again; call it also after a rollback of the space.

        Raises:
            WrongKindError: an object of that name is of another kind.
        """
        self._claim(space, name)
        self._space, self.name, self._owned, self._held, self._came_out = space, name, [], [], []
        if f"{name}/{_HELD}" in space:
            self._held = self._named_object("value", _HELD).value
        self.has_ended = f"{name}/{_ENDED}" in space
        if self.has_ended:
            self._named_object("value", _ENDED)
        else:
            self._create()
            self._resume()

    def on_next(self, value: Any, source: int = 0, at: float | None = None) -> list[Any]:
        """Take a value, and return what comes out.

        If it is refused, or a user's function raises, everything else is done, and what comes out of that comes with
        the next call. In the middle of a chain, the operators before have already taken the value: roll the space back
        if that matters.

        Args:
            value: anything that a persisted object can hold.
            source: the number of the input.
            at: the time of the value, in a unit of your choice; it must never decrease.

        Raises:
            ValueError: there is no such input.
            CheckpointProtocolError: the operator is not open.
        """
        self._check_source(source)
        return self._take(at, lambda at: self._next(value, source, at))

    @property
    def takes_time(self) -> bool:
        """Whether time alone can change anything."""
        return type(self)._tick is not EventOperator._tick

    def on_flushed(self, value: Any) -> list[Any]:
        """Take a value that an operator before gives at an end that came without a time, and return what comes out.

        It comes at the last time that the operator has heard of, and goes into what is open, so nothing is lost.
        """
        return self._take(None, lambda _: self._flushed(value))

    def on_time(self, at: float) -> list[Any]:
        """Tell the operator that the time is now ``at``, and return what comes out."""
        return self._take(at)

    def on_completed(self, source: int = 0) -> list[Any]:
        """Tell the operator that an input has ended, and return what comes out.

        Raises:
            ValueError: there is no such input.
            CheckpointProtocolError: the operator is not open.
        """
        self._check_source(source)
        return self._take(None, lambda _: self._finish(source))

    def delete(self) -> None:
        """Delete the objects of the operator, and the value that says that it has ended.

        Time: O(objects of the operator). Dirties: an index row per object.
        """
        if self._owned and not self.has_ended:
            self._delete_more()
        for name in self._owned:
            if name in self._space:
                self._space.delete(name)
        self._owned, self._claimed = [], None

    def _create(self) -> None:  # Not every operator has objects.
        """Create the objects, or find them again."""

    def _resume(self) -> None:  # Nor anything in memory.
        """Prepare what is kept in memory only."""

    def _delete_more(self) -> None:
        """Delete objects beyond those that :meth:`_object` has returned."""

    @abstractmethod
    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        """Take a value, and return what comes out."""

    def _flushed(self, value: Any) -> list[Any]:
        """Take a value at the last known time, and return what comes out; by default it is taken without a time."""
        return self._next(value, 0, None)

    def _tick(self, at: float) -> list[Any]:
        """Take the time, and return what comes out."""
        return []

    def _due_from(self) -> float:
        """Return from which time on :meth:`_tick` has something to do, ``math.inf`` if time alone changes nothing.

        It is asked after each event; a class that changes :meth:`_tick` and does not say so hears of every time.
        """
        return -math.inf

    def _wakes(self) -> float:
        """Return from which time on the operator, which is open, has to hear of the time.

        Whatever keeps it from saying so, it hears of every time: the value that it was given has been taken by then.
        """
        if self._held or self.has_ended or not self._says_when_due:
            return -math.inf
        try:
            due = plain_time(self._due_from()) if self.takes_time else math.inf
        except Exception:
            return -math.inf
        return due if due == due else -math.inf

    def _finish(self, source: int) -> list[Any]:
        """Take the end of an input, and return what comes out; by default the operator ends as well."""
        self._end()
        return []

    def _end(self) -> None:
        """End for good: delete all objects, and leave one that says so."""
        self.delete()
        self._claim(self._space, self.name)
        self.has_ended = True
        self._named_object("value", _ENDED, True)

    def _claim(self, space: ObjectSpace | SpacePart, name: str) -> None:
        """Note who uses the operator: nobody else may until it is released."""
        self._claimed = space, name

    def _let_go(self) -> None:
        """Note that nobody uses the operator any more; its objects stay."""
        self._claimed = None

    def _claimed_by_another(self, space: ObjectSpace | SpacePart, name: str) -> str | None:
        """Return the name under which somebody else uses the operator, or ``None`` if nobody does."""
        ours, (its_space, its_name) = in_whole(space, name), in_whole(*(self._claimed or (space, name)))
        return None if its_space._closed or (its_space, its_name) == ours else its_name

    def _object(self, kind: str, role: str, *arguments: Any, **options: Any) -> Any:
        """Return an object of the operator by its role, and create it if there is none.

        Raises:
            ValueError: the role is one that every operator already has.
        """
        if role in _TAKEN_ROLES:
            raise ValueError(
                f"{type(self).__name__} {self.name!r}: with the role {role!r} every operator notes"
                f" {_TAKEN_ROLES[role]}: give the object another role"
            )
        return self._named_object(kind, role, *arguments, **options)

    def _named_object(self, kind: str, role: str, *arguments: Any, **options: Any) -> Any:
        """Return an object of the operator, including those that every operator has."""
        name = f"{self.name}/{role}"
        self._owned.append(name)
        return getattr(self._space, f"get_or_create_{kind}")(name, *arguments, **options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._claimed is not None:
            raise not_copied(self, "it is open on a space; make another operator, and open that where it is needed")
        return super().__reduce_ex__(protocol)

    def _at_prompt(self) -> tuple[str, str]:
        if self._claimed is None:
            return "", "not open"
        return repr(self.name), "ended" if self.has_ended else ""

    def _take(self, at: float | None, give: Callable[[float | None], list[Any]] | None = None) -> list[Any]:
        """Return what an error held back, the time closes and ``give`` returns, or hold that back on another error."""
        if not hasattr(self, "_space"):
            raise not_open(self)
        at = self._checked_time(at)
        out: list[Any] = []
        try:
            out = self._released() if self._held else out
            if at is not None and not self.has_ended:
                out = out + self._listed(self._tick(at))
            if give is not None and not self.has_ended:
                out = out + self._listed(give(at))
        except BaseException:
            with self._space.in_one_piece(Exception):  # What interrupts it leaves half of a value: none of it is saved.
                self._hold(out + self._came_out)
                self._came_out = []
                raise
        return out

    def _listed(self, found: Any) -> list[Any]:
        """Return what a method of the class gave as a list, which is empty for ``None``.

        Raises:
            TypeError: it is not a list.
        """
        if isinstance(found, list):
            return found
        if found is None:
            return []
        raise TypeError(
            f"{type(self).__name__} {self.name!r} returned {found!r:.80}: expected a list of the values that come out,"
            " or None for nothing; what it has changed stays: roll the space back if that matters"
        )

    def _checked_time(self, at: Any) -> float | None:
        """Return a time, if there is one, as a number that has a stored form.

        Raises:
            ValueError: it is not a finite number.
        """
        if at is None:
            return None
        if not _is_time(at):
            raise ValueError(f"{type(self).__name__} {self.name!r}: the time is {at!r:.80}: expected a finite number")
        return plain_time(at)

    def _released(self) -> list[Any]:
        """Return what an error has held back, and hold it no longer."""
        held, self._held, name = self._held, [], f"{self.name}/{_HELD}"
        if name in self._owned:
            self._owned.remove(name)
            self._space.delete(name)
        return held

    def _hold(self, out: list[Any]) -> None:
        """Hold back what came out for the next call; with the objects if it can be stored."""
        self._held = out
        if out and _has_stored_form(out):
            self._named_object("value", _HELD).value = out

    def _unless(self, errors: list[Exception], out: list[Any]) -> list[Any]:
        """Return what came out; if anything raised, hold it back and raise the first error."""
        if errors:
            self._came_out = out
            raise errors[0]
        return out

    def _check_source(self, source: int) -> None:
        if not isinstance(source, Integral) or not 0 <= source < self.inputs:
            raise ValueError(f"{type(self).__name__} {self.name!r} has no input {source!r}: it has {self.inputs}")


class Chain(EventOperator):
    """Operators one after the other: what comes out of one goes into the next.

    The chain ends with the first of its operators that ends; those after it still give what they hold. What comes out
    of an operator has the time at which it came out; at an end without a time it goes into what is open in the next
    one.

    State: the objects of its operators.

    Args:
        stages: the operators, from the first to the last.

    Raises:
        TypeError: one of them is not an operator.
        ValueError: there is none, one is there twice, or one after the first has several inputs.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.operators.events import Average, Take, Where
    >>> chain = Chain(Where(lambda x: x % 2 == 1), Take(3), Average())
    >>> chain.open(VolatileObjectSpace(), "odd")
    >>> [out for x in range(10) for out in chain.on_next(x)]
    [3.0]
    """

    def __init__(self, *stages: EventOperator) -> None:
        super().__init__()
        if not stages:
            raise ValueError("a chain has at least one operator")
        _check_stages(stages)
        self._stages: Sequence[EventOperator] = stages
        self.inputs = stages[0].inputs  # type: ignore[misc]  # of this chain

    @property
    def takes_time(self) -> bool:
        """Whether time alone can change anything in one of the operators."""
        return any(stage.takes_time for stage in self._stages)

    def on_inner(self, key: Any, value: Any, at: float | None = None) -> list[Any]:
        """Hand a value to the inner sequences of a key: see :meth:`SelectMany.on_inner`.

        Raises:
            TypeError: no operator of the chain has inner sequences.
        """
        return self._inner("on_inner", key, value, at, hand=handing(at), at=at)

    def on_inner_completed(self, key: Any, at: float | None = None) -> list[Any]:
        """End the inner sequences of a key: see :meth:`SelectMany.on_inner_completed`."""
        return self._inner("on_inner_completed", key, at, hand=flush if at is None else handing(at), at=at)

    def _create(self) -> None:
        for stage, name in self._named(self.name):
            stage.open(self._space, name)

    def _named(self, name: str) -> list[tuple[EventOperator, str]]:
        """Return the operators, each with its name in a chain of this name."""
        return [(stage, f"{name}/{place}.{type(stage).__name__}") for place, stage in enumerate(self._stages)]

    def _claim(self, space: ObjectSpace | SpacePart, name: str) -> None:
        super()._claim(space, name)
        for stage, its_name in self._named(name):
            stage._claim(space, its_name)

    def _let_go(self) -> None:
        super()._let_go()
        for stage in self._stages:
            stage._let_go()

    def _claimed_by_another(self, space: ObjectSpace | SpacePart, name: str) -> str | None:
        found = [stage._claimed_by_another(space, its_name) for stage, its_name in self._named(name)]
        return next((one for one in [super()._claimed_by_another(space, name), *found] if one is not None), None)

    def delete(self) -> None:
        """Delete the objects of all operators, and the value that says that the chain has ended.

        Time: O(objects of the operators). Dirties: an index row per object.
        """
        for stage in self._stages:
            stage.delete()
        super().delete()

    def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
        return self._pass(0, lambda stage: stage.on_next(value, source, at), handing(at))

    def _flushed(self, value: Any) -> list[Any]:
        return self._pass(0, lambda stage: stage.on_flushed(value), flush)

    def _tick(self, at: float) -> list[Any]:
        out: list[Any] = []
        errors: list[Exception] = []
        for place in range(len(self._stages)):
            if not self.has_ended:
                out += self._passed(errors, place, methodcaller("on_time", at), handing(at))
        return self._unless(errors, out)

    def _due_from(self) -> float:
        return min(stage._wakes() for stage in self._stages)

    def _finish(self, source: int) -> list[Any]:
        return self._pass(0, lambda stage: stage.on_completed(source), flush)

    def _inner(self, method: str, *arguments: Any, hand: Hand, at: float | None) -> list[Any]:
        place = next((place for place, stage in enumerate(self._stages) if _has_inner(stage)), None)
        if place is None:
            raise TypeError(f"chain {self.name!r} has no operator with inner sequences")
        return self._take(at, lambda _: self._pass(place, methodcaller(method, *arguments), hand))

    def _pass(self, place: int, give: Callable[[EventOperator], list[Any]], hand: Hand) -> list[Any]:
        """Give something to an operator, what comes out to the next, and so on; if one ends, also the end."""
        errors: list[Exception] = []
        return self._unless(errors, self._passed(errors, place, give, hand))

    def _passed(
        self, errors: list[Exception], place: int, give: Callable[[EventOperator], list[Any]], hand: Hand
    ) -> list[Any]:
        """Do that and note what raises: what is handed on then is lost; an end is given again with the next call."""
        values, is_over = attempt(errors, self._stages[place], give), self._stages[place].has_ended
        for stage in self._stages[place + 1 :]:
            out: list[Any] = []
            for value in values:
                out += attempt(errors, stage, hand, value)
            if is_over:
                known = len(errors)
                out += attempt(errors, stage, complete)
                is_over = len(errors) == known
            values, is_over = out, is_over or stage.has_ended
        if is_over:
            self._end()
        return values


def _check_stages(stages: Sequence[Any]) -> None:
    for place, stage in enumerate(stages):
        if not isinstance(stage, EventOperator):
            hint = "Chain(*stages) takes them from a list" if isinstance(stage, list | tuple) else "such as Take(5)"
            raise TypeError(f"operator {place} of a chain is {told(stage)}: expected an operator; {hint}")
        if any(stage is other for other in stages[:place]):
            raise ValueError(f"operator {place} of a chain is {told(stage)} already in it: make one per place")
        if place and stage.inputs != 1:
            raise ValueError(
                f"operator {place} of a chain is {told(stage)} with {stage.inputs} inputs: only the first operator of a"
                " chain has several, since nothing else could reach them"
            )


def checked_function(operator: str, what: str, function: Any) -> Any:
    """Return a function of a value.

    Raises:
        TypeError: it is not a function.
    """
    if not callable(function):
        raise TypeError(f"{operator}: {what} is {told(function)}: expected a function of a value")
    return function


def told(value: Any) -> str:
    """Describe in a few words what was given where an operator is expected."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, EventOperator):
        return f"an operator {type(value).__name__}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{value!r:.80}"


def _has_inner(operator: EventOperator) -> bool:
    """Return whether an operator, or one in a chain, takes values of inner sequences."""
    return any(map(_has_inner, operator._stages)) if isinstance(operator, Chain) else hasattr(operator, "on_inner")


def handing(at: float | None) -> Hand:
    """Return a function that hands values to operators as values of this time."""
    return lambda operator, value: operator.on_next(value, 0, at)


def flush(operator: EventOperator, value: Any) -> list[Any]:
    """Hand a value to an operator as a value of the last time that it has heard of."""
    return operator.on_flushed(value)


def complete(operator: EventOperator) -> list[Any]:
    """Tell an operator that its input has ended."""
    return operator.on_completed()


def attempt(errors: list[Exception], operator: EventOperator, ask: Callable[..., list[Any]], *given: Any) -> list[Any]:
    """Return what comes out of an operator; if it raises, note the error and return what came out by then."""
    try:
        return ask(operator, *given)
    except Exception as error:
        errors.append(error)
        return operator._released()


def checked_count(count: Any, least: int) -> int:
    """Return a count after checking it.

    Raises:
        ValueError: it is not a whole number, or is less than the least one.
    """
    if not isinstance(count, Integral) or isinstance(count, bool) or count < least:
        raise ValueError(f"count is {count!r:.80}: expected a whole number from {least}")
    return int(count)


def plain_number(value: Any) -> Any:
    """Return a NumPy number as a Python one, which no sum overflows, and anything else as it is."""
    kind = getattr(value, "dtype", None)
    return value.item() if kind is not None and kind.kind in "iuf" and value.shape == () else value


def _is_time(at: Any) -> bool:
    """Return whether a time is a finite number, such as an ``int``, a ``Decimal`` or a NumPy number."""
    try:
        return math.isfinite(at)
    except OverflowError:
        return isinstance(at, Integral)  # a whole number beyond all floats
    except (TypeError, ValueError):
        return False


def _has_stored_form(value: Any) -> bool:
    try:
        return bool(encode(value))
    except (TypeError, ValueError):
        return False
