"""``python -m checkpoint`` is the command ``checkpoint``."""

from checkpoint.tool.command import main

if __name__ == "__main__":
    main()
