"""The manual: the help of every command, as it stands in the documentation."""

from __future__ import annotations

import click

from checkpoint.tool.command import ORDER, cli, load


def manual() -> str:
    """Return the help of the tool and of each of its commands, as Markdown."""
    load()
    # With the settings of the group, as on the command line: click keeps the help option of the first context.
    root = click.Context(cli, info_name="checkpoint", terminal_width=100, **cli.context_settings)
    parts = [_block(cli.get_help(root))]
    for name in ORDER:
        command = cli.commands[name]
        context = click.Context(command, info_name=name, parent=root, terminal_width=100)
        parts.append(f"### {name}\n\n{_block(command.get_help(context))}")
    assert set(ORDER) == set(cli.commands), "a command is not in the manual"
    return "\n".join(parts)


def _block(text: str) -> str:
    return f"```text\n{text}\n```\n"
