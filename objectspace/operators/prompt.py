"""What a prompt shows of operators, pipelines and runs."""

from __future__ import annotations


class ShownAtPrompt:
    """What has a text for people only: a function that closes over it stays the same, whatever the text says."""

    def __repr__(self) -> str:
        name, (what, state) = type(self).__name__, self._at_prompt()
        return f"<{name} {what} [{state}]>".replace("  ", " ") if state else f"{name}({what})"

    def _at_prompt(self) -> tuple[str, str]:
        """Return what it is, and a word for a state in which it is of no use, which is empty otherwise."""
        raise AssertionError(f"{type(self).__name__} must define _at_prompt")
