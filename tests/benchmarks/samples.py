"""A scenario that runs in no time, with contestants that behave and others that do not."""

from __future__ import annotations

import os
import random
import time

from benchmarks.registry import Action, Contestant, Scenario, Script, Sizes, Step, Subject

HELD_BYTES = 64 << 20


class Well(Subject):
    """Appends to a file and returns what it was told to."""

    def fill(self) -> None:
        (self.place / "file").write_bytes(bytes(self.state))

    def open(self) -> None:
        self.order = (self.place / "file").open("ab", buffering=0)

    def action(self, step: Step, chance: random.Random) -> Action:
        number = chance.randrange(1_000)

        def run() -> int:
            self.order.write(bytes(4096 * step.units))
            os.fsync(self.order.fileno())
            return number

        return run

    def close(self) -> None:
        self.order.close()


class Heavy(Well):
    """Holds more memory than the others."""

    def open(self) -> None:
        super().open()
        self.held = bytearray(os.urandom(1) * HELD_BYTES)


class Failing(Well):
    """Fails in the midst of the second step."""

    done = 0

    def action(self, step: Step, chance: random.Random) -> Action:
        self.done += step.label == "second"
        if self.done > 2:
            raise RuntimeError("no second step")
        print("what a rival prints is not an answer")
        return super().action(step, chance)


class Unfillable(Well):
    def fill(self) -> None:
        raise OSError("no room")


class Slow(Well):
    def action(self, step: Step, chance: random.Random) -> Action:
        return lambda: time.sleep(60)


class Dying(Well):
    def action(self, step: Step, chance: random.Random) -> Action:
        return lambda: os._exit(3)


class Wrong(Well):
    def action(self, step: Step, chance: random.Random) -> Action:
        return lambda: -1


def scenario(name: str, *others: Contestant, patience: float = 30.0) -> Scenario:
    """Return a scenario of ours and others."""
    sizes = Sizes((10_000,), (Step("first", 1), Step("second", 2, x=2), Step("never", 1, least_state=10**9)), 3, 30.0)
    quick = Sizes(sizes.states, sizes.steps, 3, 30.0, patience)
    ours = Contestant("ours", Well, "as it is", "ours")
    return Scenario(name, "group", "A title", "A reason", "bytes", "page", (ours, *others), quick, sizes)


SCENARIOS = (
    scenario(
        "mixed",
        Contestant("heavy", Heavy, "with memory"),
        Contestant("failing", Failing, "as it is"),
        Contestant("unfillable", Unfillable, "as it is"),
        Contestant("absent", Well, "as it is", needs=("no_such_module_anywhere",)),
        Contestant("refused", Well, "as it is", refusal=lambda: "not advised here"),
        Contestant("small", Well, "as it is", largest=(10, "it would take for ever")),
        Contestant("floor", Well, "as it is", "floor"),
    ),
    scenario("slow", Contestant("slow", Slow, "as it is"), Contestant("dying", Dying, "as it is"), patience=5.0),
    scenario("wrong", Contestant("wrong", Wrong, "as it is")),
    Script("script", "group", "A script", "A reason", "tests.benchmarks.printing"),
    Script("broken", "group", "A script", "A reason", "tests.benchmarks.printing", quick=("--fail",)),
    Script("endless", "group", "A script", "A reason", "tests.benchmarks.printing", quick=("--linger",), patience=3),
    Script("gone", "other", "A script", "A reason", "tests.benchmarks.no_such_script"),
)
