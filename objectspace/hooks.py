"""What layers above register with a space, to be called at a barrier, a save, a rollback, a deletion or a renaming."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from objectspace.objects.base import PersistedObject


class Hooks:
    """The functions that a space calls, in the order in which they were registered."""

    def __init__(self) -> None:
        self._barriers: list[Callable[[int], None]] = []
        self._sealed: list[Callable[[], int]] = []
        self._refusals: list[Callable[[], None]] = []
        self._rollbacks: list[Callable[[], None]] = []
        self._deletions: list[Callable[[PersistedObject], None]] = []
        self._renamings: list[Callable[[str, str], None]] = []

    def on_barrier(self, seal: Callable[[int], None]) -> None:
        """Register a function to call with the epoch before ``checkpoint()`` collects.

        What the function raises stops the checkpoint. This is for layers above, which hold back what belongs to an
        epoch until it is sealed. To refuse a checkpoint, it raises an error of the library, a ``ValueError`` or a
        ``TypeError``, having changed nothing: then the next checkpoint may follow. Any other exception may have struck
        halfway, so nothing is saved before a rollback.
        """
        self._barriers.append(seal)

    def ask_sealed(self, sealed: Callable[[], int]) -> Callable[[], None]:
        """Register a function that a save asks for the last sealed epoch: what it collects can have no earlier one.

        ``checkpoint()`` asks before it seals anything; what the function raises stops the checkpoint, or the save.

        Returns:
            a function that takes the registration back.
        """
        self._sealed.append(sealed)
        return partial(self._sealed.remove, sealed)

    def ask_before_save(self, refuse: Callable[[], None]) -> Callable[[], None]:
        """Register a function to call before a save or checkpoint, which it refuses by raising.

        Returns:
            a function that takes the registration back.
        """
        self._refusals.append(refuse)
        return partial(self._refusals.remove, refuse)

    def on_rollback(self, forget: Callable[[], None]) -> Callable[[], None]:
        """Register a function to call after ``rollback()``, to drop what it holds back; return what unregisters it."""
        self._rollbacks.append(forget)
        return partial(self._rollbacks.remove, forget)

    def on_delete(self, forget: Callable[[PersistedObject], None]) -> None:
        """Register a function to call with the handle of a deleted object, if there was one: it refuses all work now.

        It belongs to the deletion: if Ctrl-C keeps it from being told, nothing is saved before a rollback. So it must
        change nothing in the space itself, and not save. All functions are called; the first error that one of them
        raises is raised by ``delete()`` in the end, and the object stays deleted.
        """
        self._deletions.append(forget)

    def on_rename(self, follow: Callable[[str, str], None]) -> None:
        """Register a function to call with the old and the new name of a renamed object, to call it by the new one.

        It belongs to the renaming, as a function of :meth:`on_delete` does to a deletion.
        """
        self._renamings.append(follow)

    def _may_be_refused(self) -> None:
        """Ask whoever may refuse a save."""
        for refuse in list(self._refusals):
            refuse()

    def _last_sealed(self) -> int:
        return max((ask() for ask in list(self._sealed)), default=0)


def tell(functions: Iterable[Callable[..., None]], *arguments: object) -> list[Exception]:
    """Call functions, each of them whatever another one raises, and return what they have raised."""
    errors: list[Exception] = []
    for function in list(functions):
        try:
            function(*arguments)
        except Exception as error:
            errors.append(error)
    return errors


def raise_first(errors: list[Exception]) -> None:
    """Raise the first of some errors, if there is any."""
    for error in errors:
        raise error
