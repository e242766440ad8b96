"""A script that prints the tables of a measurement that never was."""

from __future__ import annotations

import sys
import time

from benchmarks.timing import table


def main() -> None:
    print("some text\n")
    rows = [
        ("list of 10", "`t[i]`", "27.9 ns", "1.88", "1.46 (1.31-1.90)"),
        ("list of 10", "other", "1 us", "", "none"),
    ]
    print(table("Gets", ("object", "code", "here", "there", "ratio"), rows))
    print(table("Sizes", ("what", "bytes"), [("10,000", "4 kB")]))
    sys.stdout.flush()
    if sys.argv[1:] == ["--linger"]:
        time.sleep(3600)
    if sys.argv[1:] == ["--fail"]:
        raise SystemExit("it failed at the end")


if __name__ == "__main__":
    main()
