"""Running a pipeline in one process: one epoch per batch, exactly once, continuing where the last run ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from checkpoint import CheckpointStore, Receipt
from checkpoint.errors import not_copied
from checkpoint.process import collecting_seldom
from objectspace.errors import CheckpointProtocolError
from objectspace.operators import catalogue
from objectspace.operators.base import Operator, call_after_rollbacks
from objectspace.operators.catalogue import Difference, PipelineChangedError
from objectspace.operators.graph import Graph
from objectspace.operators.inputs import chunks_of
from objectspace.operators.materialize import Materialize
from objectspace.operators.plan import Node, Plan
from objectspace.operators.prompt import ShownAtPrompt
from objectspace.operators.turns import turns_on
from objectspace.persisted import PersistedObjectSpace
from objectspace.relational import Chunk, EpochError, SchemaError, compacted
from objectspace.relational.registry import registry_of
from objectspace.relational.schema import Row
from objectspace.space import ObjectSpace
from objectspace.volatile import VolatileObjectSpace

if TYPE_CHECKING:
    from objectspace.operators.builder import Pipeline

_P = ParamSpec("_P")
_Found = TypeVar("_Found")

POSITION = "$position"
"""The name of the value that says how many batches are in the state."""


def _changing(method: Callable[Concatenate[LocalRun, _P], _Found]) -> Callable[Concatenate[LocalRun, _P], _Found]:
    """Let one thread at a time do what changes the space, once the run is ready for it."""

    @wraps(method)
    def _method(run: LocalRun, /, *args: _P.args, **named: _P.kwargs) -> _Found:
        with run._turns.in_one_thread(_NO_CHANGE):
            run._begin()
            return method(run, *args, **named)

    return _method


_NO_CHANGE = "no run can change the space"
_NO_END = "no run can be closed, and its space with it,"
_NO_OPENING = "no run can be opened on the space"
_NO_CLOSING = "no run with operators that are new can be closed, which rolls back the space,"


class LocalRun(ShownAtPrompt):
    """A pipeline on a store, in this process.

    After a rollback of its space, or if another run has been at work on it, the run opens its operators again before it
    reads or writes anything: its pipeline is compared with what the space holds by then. So runs may take turns on a
    space, and each continues after the last batch of all of them. What changes the space is refused while another
    thread is changing it with a run.

    Args:
        pipeline: the pipeline.
        store: a store, the path of one, or a space on one; a store in memory by default.
        drop_changed: whether state that the pipeline has no use for is dropped when the run is opened, and again after
            a rollback to before that; otherwise such a pipeline is refused.
        keep_changes: whether the changes of the results are kept for :meth:`changes`, and the receipts of all epochs;
            otherwise ``receipts`` has the last one only, and a run may go on for ever in the same memory.

    Raises:
        PipelineChangedError: the store holds the state of another pipeline; the error says what differs.
    """

    def __init__(
        self, pipeline: Pipeline, store: Any = None, *, drop_changed: bool = False, keep_changes: bool = True
    ) -> None:
        self.pipeline = pipeline
        self.space, self._owned = _space_on(store)
        self._keep = keep_changes
        self.receipts: list[Receipt] = []
        self._changes: dict[str, list[tuple[int, Chunk]]] = {}
        self._new: tuple[Node, ...] = ()
        self._unsure: set[Node] = set()
        self._shadow: Graph | None = None
        self._replayed, self._is_rolled_back = 0, False
        self._turns, self._me = turns_on(self.space), object()
        self._seen: object = None
        self._epochs = 0  # The count of Turns, as long as no other run makes an epoch.
        self._gone: dict[str, str] | None = None
        self._dropped_in: int | None = None
        try:
            with self._turns.in_one_thread(_NO_OPENING):
                self._turns.refuse_beside("no run can be opened")
                plan, difference = self._compared(may_drop=drop_changed)
                self._gone = catalogue.identities(self.space, difference.gone)
                self._graph, self._epochs = self._open(plan, difference), self._turns.epochs
        except BaseException:
            self.close()
            raise
        call_after_rollbacks(self.space, self._forget)

    @property
    def position(self) -> int:
        """How many batches are in the state: the number of the last one, counted from 1.

        Raises:
            CheckpointProtocolError: the space holds a part of an epoch that has failed, and was not rolled back.
        """
        self._turns.refuse_failed("a run cannot say how many batches are in the state")
        found: int = self.space.get_value(POSITION).value if POSITION in self.space else 0
        return found

    @property
    def epoch(self) -> int:
        """The last epoch: the same as the position, plus one for each time that the pipeline was changed."""
        return self.space.store.next_epoch() - 1

    @property
    def is_behind(self) -> bool:
        """Whether operators are new to the store and must be fed what came before.

        Raises:
            PipelineChangedError: a rollback or another run has left the state of another pipeline in the space.
        """
        if not self._must_open():
            return bool(self._new)
        _, difference = self._compared(may_drop=self._may_drop_again())
        return self.position > 0 and bool(difference.new)

    @collecting_seldom()
    @_changing
    def step(self, batch: Mapping[str, Any]) -> Receipt:
        """Process the next batch as one epoch, and make it durable.

        Args:
            batch: the rows of each source by its name.

        Returns:
            the receipt of the checkpoint.

        Raises:
            RowError: a row does not fit its source; nothing has changed then.
            PipelineChangedError: operators are new and have not been fed what came before, or a rollback or another run
                has left the state of another pipeline in the space, or the pipeline got sources or results since the
                run was opened.
            CheckpointProtocolError: another run is feeding new operators, or a run is in the middle of an epoch; or
                what makes the rows continued a run or rolled the space back; or the space cannot be saved, for example
                while another save is in flight. Nothing has changed then.

        If anything fails while the batch is processed, the space goes back to its last checkpoint. If that fails or is
        interrupted, nothing can be saved until ``space.rollback()`` has completed.

        Time: O(changes). Dirties: what the changes change.
        """
        self._require_fed(self._new)
        number = self.position + 1
        return self._run_epoch(self._read(batch, number), number)

    @collecting_seldom()
    @_changing
    def replay(self, batch: Mapping[str, Any], number: int) -> None:
        """Feed a batch that is already in the state to the operators that are new, and to no others.

        Until :meth:`finish_replay` the space refuses to be saved. If anything fails while the batch is processed, the
        space goes back to its last checkpoint, and the next replay must be that of batch 1.

        Raises:
            RowError: a row does not fit its source; nothing has changed then.
            EpochError: it is not the next batch, or no operator is new.
            CheckpointProtocolError: another run is feeding new operators, or a run is in the middle of an epoch; or
                what makes the rows continued a run or rolled the space back.
        """
        shadow = self._required_shadow(number)
        chunks = self._read(batch, number)
        epoch = self._next_epoch()
        with _AllOrNothing(self), self._turns.in_epoch(epoch):
            names = [self.plan.names[node] for node in self._new]
            self._turns.begin_feeding(self._me, names)
            for operator in shadow.operators.values():
                operator.begin_batch(number)
            self._feed(shadow, chunks)
            for node in self.plan.at_work:
                shadow.barrier(epoch if node in self._new else number, [node])
            # New operators go through all their batches in one epoch, which their tables seal again with each batch.
            registry_of(self.space).reopen(names)
            self._replayed = number

    @_changing
    def finish_replay(self) -> None:
        """Make what was replayed durable, as an epoch of its own.

        Raises:
            PipelineChangedError: batches are missing.
        """
        if not self._new:
            return
        if self._replayed != self.position:
            found = f"batches 1 to {self._replayed}" if self._replayed else "no batches"
            raise PipelineChangedError(
                f"{self._difference()}: found {found}, but the state has {self.position}: pass them all again, from the"
                " first one"
            )
        assert self._shadow is not None
        with _AllOrNothing(self):
            new = self._all_new()
            for node, chunks in self._shadow.taken_output().items():
                if node in new:
                    self._graph.output[node] += chunks
            noted, self._new, self._shadow, self._replayed = self._new, (), None, 0
            catalogue.note(self.space, self.plan, noted, repeatable=True)
            self._turns.end_feeding()
            self._run_epoch({}, self.position)

    @_changing
    def finish_dropping(self) -> None:
        """Make durable that state was dropped, as an epoch of its own, unless another epoch has done so already.

        Raises:
            PipelineChangedError: operators are new and have not been fed what came before.
        """
        self._require_fed(self._new)
        if self._dropped_in == self._turns.epochs:
            self._run_epoch({}, self.position)

    def rows(self, name: str, *, hidden: bool = False) -> list[Row]:
        """Return the rows of a materialised result, in the order of its key.

        Args:
            name: its name.
            hidden: whether to return hidden columns too.

        Raises:
            SchemaError: nothing is materialised under the name.
            PipelineChangedError: it is new and has not been fed what came before, or the run was opened without it, or
                a rollback or another run has left the state of another pipeline in the space.
            CheckpointProtocolError: since a rollback there are new operators that were not opened yet, while another
                run is feeding new operators or is in the middle of an epoch.
        """
        self._settle(is_reading=True)
        self._require_fed(self._all_new() & {self.pipeline.materialized(name)})
        operator, node = self._result(name), self.pipeline.results[name]
        places = [
            place for place, column in enumerate(node.schema.names) if hidden or column in self.pipeline.columns[name]
        ]
        return [tuple([row[place] for place in places]) for row in operator.scan()]

    def changes(self, name: str) -> list[tuple[int, Chunk]]:
        """Return the changes of a result in this run: pairs (epoch, chunk).

        Raises:
            SchemaError: nothing is materialised or sunk under the name.
            PipelineChangedError: the run was opened without it.
        """
        if name not in self._changes:
            if name in self.pipeline.results:
                self._require_as_opened()
            raise SchemaError(f"the pipeline has no result {name!r}: it has {', '.join(self._changes)}")
        return list(self._changes[name])

    def explain(self) -> str:
        """Return the plan with the names that the state is stored under."""
        return self.plan.explain()

    def close(self) -> None:
        """Close the space, if this run opened it. May be called twice.

        If new operators have not been fed all that came before, by this run or another one, the space goes back to its
        last checkpoint; but not while another run is feeding new operators.

        Raises:
            CheckpointProtocolError: a run is in the middle of an epoch, or another thread is about to begin one.
        """
        if self._owned:
            with self._turns.in_one_thread(_NO_END):
                self._turns.refuse_in_epoch(_NO_END)
                self.space.close()
        elif self._is_half_done():
            # While this run feeds, all others are refused at once.
            with self._turns.in_one_thread(_NO_CLOSING, waits=self._turns.is_feeder(self._me)):
                self._turns.refuse_in_epoch(_NO_CLOSING)
                self._new = ()
                self.space.rollback()

    def __enter__(self) -> LocalRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise not_copied(self, "open another run where it is needed: LocalRun(pipeline, store)")

    def _at_prompt(self) -> tuple[str, str]:
        path, store = self.space.store.path, self.space.store
        if self.space._closed or not store.session.is_open:
            return repr(path), "closed"
        return f"{path!r}, epoch {self.epoch}, results {', '.join(self.pipeline.results)}", ""

    def _forget(self) -> None:
        """Drop what is in memory of epochs that no longer exist, because the space was rolled back."""
        self._is_rolled_back, self._dropped_in = True, None
        self.receipts = [receipt for receipt in self.receipts if receipt.epoch <= self.epoch]
        for name, changes in self._changes.items():
            self._changes[name] = [change for change in changes if change[0] <= self.epoch]

    def _begin(self) -> None:
        """Prepare to change the space, which nobody may do while another run is feeding new operators."""
        self._turns.refuse_in_epoch(_NO_CHANGE)
        self._turns.refuse_beside("no other run can change the space", self._me if self._replayed else None)
        self._require_savable()
        self._settle()
        self._require_as_opened()

    def _require_as_opened(self) -> None:
        """Refuse to go on without sources and results that the pipeline got since the operators were opened.

        Rows of such a source would go nowhere.
        """
        added = [name for name in self._declared() if name not in self._opened_with]
        if added:
            raise PipelineChangedError(
                f"the pipeline got {', '.join(added)} after this run was opened: close it, and call run_local() again"
            )

    def _declared(self) -> list[str]:
        parts = {"source": self.pipeline.sources, "result": self.pipeline.results}
        return [f"{what} {name!r}" for what, names in parts.items() for name in names]

    def _require_savable(self) -> None:
        """Let anything that would refuse to save the epoch refuse it now: a rollback drops what is not saved."""
        if not self._turns.is_feeding:  # While a run is feeding, nothing is saved.
            self.space.check_save()

    def _settle(self, *, is_reading: bool = False) -> None:
        """Open the operators again if the space may hold the state of another pipeline, or a later state.

        A run that only reads drops nothing for that.
        """
        if not self._must_open():
            return
        self._turns.refuse_failed("a run cannot open its operators")
        plan, difference = self._compared(may_drop=self._may_drop_again())
        if is_reading and difference.gone:
            raise PipelineChangedError(
                f"the space was rolled back to before this run dropped state: {difference.describe(self.space, plan)};"
                " step(), replay() or finish_dropping() of this run drop that again, and then its results can be read"
            )
        if difference.new or not is_reading:
            self._turns.refuse_beside(
                "a run cannot open operators that are new" if is_reading else "no run can be opened"
            )
        self._seen = None  # Until they are open.
        self._graph = self._open(plan, difference)
        self._is_rolled_back = False

    def _must_open(self) -> bool:
        """Return whether there was a rollback, or another run has made an epoch durable, or dropped or added state."""
        if self._is_rolled_back or self._turns.last != self._seen:
            return True
        return catalogue.compare(self.space, self.plan) != Difference(self._new, ())

    def _may_drop_again(self) -> bool:
        """Return whether what is there was brought back by a rollback, and cannot have been added by another run."""
        return self._is_rolled_back and self._turns.epochs == self._epochs

    def _is_half_done(self) -> bool:
        """Return whether the space holds a part of what this run, and no other, has yet to feed."""
        if not self._new or self._is_rolled_back:
            return False
        is_unfed = not set(self._new).isdisjoint(catalogue.compare(self.space, self.plan).new)
        return self._turns.is_feeder(self._me) or (is_unfed and not self._turns.is_feeding)

    def _go_back(self) -> None:
        """Take the space back to its last checkpoint after a failure.

        Operators hold rows in memory: only operators opened again are certain to be at the last checkpoint.
        """
        self._turns.fail()
        self._is_rolled_back = True  # Even if that fails: then they are not opened on what is half done.
        self.space.rollback()

    def _required_shadow(self, number: int) -> Graph:
        """Return the graph that feeds the new operators, for the batch that comes next."""
        if self._shadow is None:
            raise EpochError(
                f"batch {number} is replayed, but no operator is new: give what comes after batch {self.position} to"
                " step()"
            )
        if number != self._replayed + 1:
            raise EpochError(
                f"batch {number} is replayed after batch {self._replayed}: replay all from 1, in order; also after a"
                " replay that failed, which goes back to before the first one"
            )
        return self._shadow

    def _require_fed(self, nodes: Collection[Node]) -> None:
        """Make sure that some operators have been fed what came before them."""
        if nodes:
            raise PipelineChangedError(
                f"{self._difference()}: replay batches 1 to {self.position} first; run_local() does it"
            )

    def _compared(self, *, may_drop: bool) -> tuple[Plan, Difference]:
        """Return the plan for what is stored, and how it differs; later on only what went at first may be dropped."""
        plan = self.pipeline.plan(catalogue.stored_names(self.space))
        difference = catalogue.compare(self.space, plan)
        gone = catalogue.identities(self.space, difference.gone)
        if gone and not (may_drop and (self._gone is None or gone.items() <= self._gone.items())):
            raise PipelineChangedError(
                f"the pipeline is not the one the state belongs to: {difference.describe(self.space, plan)}; go"
                " back to the pipeline as it was, or open a run with drop_changed=True to drop that state"
            )
        return plan, difference

    def _open(self, plan: Plan, difference: Difference) -> Graph:
        """Open the operators on what is stored, and drop what is gone."""
        catalogue.require_accounted(self.space, plan, difference, POSITION)
        if self.position:
            catalogue.require_whole(self.space, plan, difference)
        new = () if self.position == 0 else difference.new
        unsure = catalogue.unrepeatable(self.space, plan, difference, is_in_step=self.epoch == self.position)
        catalogue.require_repeatable(plan, new, unsure)
        self.plan, self._new, self._unsure, self._replayed = plan, new, unsure, 0
        self._opened_with = frozenset(self._declared())
        self._changes = {name: self._changes.get(name, []) for name in self.pipeline.results}
        if difference.gone:
            catalogue.forget(self.space, difference.gone)
            self._turns.dropped()
            self._dropped_in = self._turns.epochs
        operators = self._opened(self.space, plan.at_work)
        catalogue.begin(self.space, POSITION)
        if not new:
            catalogue.note(self.space, plan, difference.new, repeatable=True)
        self._shadow = self._made_shadow(operators) if new else None
        self._seen = self._turns.last
        return Graph(plan, operators)

    def _opened(self, space: ObjectSpace, nodes: Iterable[Node]) -> dict[Node, Operator]:
        found: dict[Node, Operator] = {}
        for node in nodes:
            if node.make is not None:
                found[node] = node.make()
                found[node].open(space, self.plan.names[node])
        return found

    def _made_shadow(self, operators: Mapping[Node, Operator]) -> Graph:
        """Return a graph in which stored operators run once more, in memory, to feed the new ones."""
        old = self._opened(VolatileObjectSpace(), [node for node in self.plan.at_work if node not in self._new])
        return Graph(self.plan, {**operators, **old})

    def _all_new(self) -> set[Node]:
        """Return the nodes that are new to the store, and those that read from such a node."""
        found = set(self._new)
        for node in self.plan.nodes:  # Inputs come before readers.
            if not found.isdisjoint(node.inputs):
                found.add(node)
        return found

    def _difference(self) -> str:
        return ", ".join(f"{self.plan.names[node]!r} ({node.describe()}) is new" for node in self._new)

    def _next_epoch(self) -> int:
        """Return the next epoch: if a table has sealed a later one that is not durable, it is that one.

        The operators' tables can seal it once more, as after a failed checkpoint: none of them has anything in it.
        """
        registry = registry_of(self.space)
        epoch = max(self.space.store.next_epoch(), registry.sealed_epoch())
        registry.reopen([self.plan.names[node] for node in self.plan.at_work])
        return epoch

    def _run_epoch(self, chunks: Mapping[Node, Chunk], number: int) -> Receipt:
        epoch = self._next_epoch()
        with _AllOrNothing(self), self._turns.in_epoch(epoch):
            changes = self._processed(chunks, number, epoch)
            self._turns.let_save()
            receipt = self.space.checkpoint(epoch=epoch)
        self._turns.made_epoch()
        self._seen, self._epochs = self._turns.last, self._epochs + 1
        for name, chunk in changes.items():
            if chunk is not None and self._keep:
                self._changes[name].append((epoch, chunk))
        if not self._keep:
            self.receipts.clear()
        self.receipts.append(receipt)
        return receipt

    def _read(self, batch: Mapping[str, Any], number: int) -> dict[Node, Chunk]:
        """Return what a batch brings: a generator of rows may run any code except code that moves the space.

        Raises:
            CheckpointProtocolError: it did.
        """
        before = self._state()
        chunks = chunks_of(self.plan, self.pipeline.sources, batch, number)
        if self._state() != before:
            raise CheckpointProtocolError(
                f"while the rows of batch {number} were read the space was rolled back, or a run on it went on: give"
                " the batch again, as it was not processed, with rows whose reading does neither"
            )
        self._require_savable()
        return chunks

    def _state(self) -> tuple[object, ...]:
        """Return a value that differs once a run has continued, or the space was rolled back."""
        return self._turns.last, self._turns.is_feeding, self._replayed, self._is_rolled_back

    def _processed(self, chunks: Mapping[Node, Chunk], number: int, epoch: int) -> dict[str, Chunk | None]:
        """Process a batch up to where it can be saved, and return what it changes in the results."""
        for node, operator in self._graph.operators.items():
            if node not in self._unsure:  # Those continue with the numbers that they began with.
                operator.begin_batch(number)
        self._feed(self._graph, chunks)
        self._graph.barrier(epoch, self.plan.at_work)
        found = self._graph.taken_output()
        changes = {name: _together(found.get(node, [])) for name, node in self.pipeline.results.items()}
        for name, function in self.pipeline.functions.items():
            if (changed := changes[name]) is not None:
                function(epoch, changed)
        if self._is_rolled_back:
            raise CheckpointProtocolError(
                f"the space was rolled back while a run processed epoch {epoch}, and lost what it held of it: call"
                " rollback() when the run has returned, and give the batch again"
            )
        catalogue.note_repeatable(self.space, self.plan, self._unsure)
        self.space.get_or_create_value(POSITION).value = number
        return changes

    def _feed(self, graph: Graph, chunks: Mapping[Node, Chunk]) -> None:
        for node, chunk in chunks.items():
            graph.push(node, chunk)

    def _result(self, name: str) -> Materialize:
        node = self.pipeline.materialized(name)
        if node not in self._graph.operators:
            self._require_as_opened()
        operator = self._graph.operators[node]
        assert isinstance(operator, Materialize)
        return operator


class _AllOrNothing:
    """A ``with`` block after whose failure the space of a run goes back to its last checkpoint.

    This is a class because a generator would not do: if Ctrl-C keeps it from hearing that its block was left, it is
    closed only once the interruption is no longer referenced, and would drop what was done until then.
    """

    def __init__(self, run: LocalRun) -> None:
        self._run = run

    def __enter__(self) -> None:
        """Do nothing: the last checkpoint is what it goes back to."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._run._go_back()


def run_local(
    pipeline: Pipeline,
    batches: Iterable[Mapping[str, Any]],
    store: Any = None,
    *,
    drop_changed: bool = False,
    keep_changes: bool = True,
) -> LocalRun:
    """Run a pipeline in this process: each batch is an epoch, and each epoch a checkpoint.

    Batches are counted from 1. Those that are already in the state of the store are skipped, so a run that is started
    again with the same batches continues after the last durable one. All rows of a batch are processed before its
    barrier travels, so several inputs are aligned.

    Operators that are new to a store that has batches are fed those batches once more, and become durable as an epoch
    of their own. The dropping of state becomes durable in the same way, if no batch follows.

    Args:
        pipeline: the pipeline.
        batches: for each epoch, the rows of each source by its name: see
            :func:`objectspace.operators.inputs.chunks_of`.
        store: a store, the path of one, or a space on one; a store in memory by default.
        drop_changed: whether the state of operators that changed or are gone is dropped.
        keep_changes: whether the changes of the results, and the receipts of all epochs, are kept.

    Returns:
        the run, with its results, and :meth:`LocalRun.step` for more batches.

    Raises:
        PipelineChangedError: the store holds state that does not fit the pipeline.
        RowError: a row does not fit its source; the epochs before are durable.
    """
    if isinstance(batches, Mapping):
        names = ", ".join(map(str, batches))
        raise TypeError(f"batches are a list of mappings, one for each epoch: found one mapping of {names}")
    if not isinstance(batches, Iterable):
        raise TypeError(f"batches are a list of mappings, one for each epoch: found {batches!r:.80}")
    run = LocalRun(pipeline, store, drop_changed=drop_changed, keep_changes=keep_changes)
    try:
        for number, batch in enumerate(batches, 1):
            if number <= run.position:
                if run.is_behind:
                    run.replay(batch, number)
                continue
            run.finish_replay()
            run.step(batch)
        run.finish_replay()
        run.finish_dropping()
    except BaseException as error:
        try:
            run.close()
        except CheckpointProtocolError as refused:
            error.add_note(f"What the run has opened was not taken back: {refused}")
        raise
    return run


def _space_on(store: Any) -> tuple[PersistedObjectSpace, bool]:
    """Return the space to run on, and whether it is ours to close."""
    if isinstance(store, PersistedObjectSpace):
        return store, False
    if isinstance(store, CheckpointStore):
        return PersistedObjectSpace(store), False
    if store is None or isinstance(store, str | Path):
        return PersistedObjectSpace.open(":memory:" if store is None else store), True
    raise TypeError(f"store is a {type(store).__name__}: pass a CheckpointStore, the path of one, or a space on one")


def _together(chunks: list[Chunk]) -> Chunk | None:
    """Return the changes of an epoch as one chunk of net changes, or ``None`` if there are none."""
    if not chunks:
        return None
    net = compacted(chunks)
    return net if len(net) else None
