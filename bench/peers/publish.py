#!/usr/bin/python3
"""Puts the table of bench/peers/results.md into doc/compared.md, and some of it into README.md.

publish.py [ROOT]: results.md must have all tools.
"""
import pathlib
import re
import sys

from contenders import CONTENDERS

# What the README has of the columns
COLUMNS = 0, 1, 3, 4, 5, 6, 8
TABLE = re.compile(r"^\| Tool \|.*\n(?:\|.*\n)+", re.M)


def replace(path, pattern, text):
    """Replaces what the pattern finds in a file, once."""
    old = path.read_text(encoding="utf-8")
    new, found = re.subn(pattern, lambda match: text, old)
    if found != 1:
        sys.exit(f"{path} has {found} times {getattr(pattern, 'pattern', pattern)}")
    path.write_text(new, encoding="utf-8")


def main():
    root = pathlib.Path(sys.argv[1] if sys.argv[1:] else ".")
    results = (root / "bench/peers/results.md").read_text(encoding="utf-8")
    table = TABLE.search(results)[0]
    head, line, *rows = table.splitlines()
    if len(rows) != len(CONTENDERS):
        sys.exit(f"results.md has {len(rows)} of {len(CONTENDERS)} tools")
    machine, date = re.search(r"^(PostgreSQL .*); ([0-9-]+), commit", results, re.M).groups()

    chosen = [head, line] + [row for row, contender in zip(rows, CONTENDERS) if contender.in_readme]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in chosen]
    short = "".join("| " + " | ".join(row[column] for column in COLUMNS) + " |\n" for row in cells)
    replace(root / "doc/compared.md", TABLE, table)
    replace(root / "doc/compared.md", r"Measured on .*? cores\.",
            f"Measured on {date} on one machine: {machine}.")
    replace(root / "README.md", TABLE, short)
    replace(root / "README.md", r"all \d+ rows", f"all {len(rows)} rows")


if __name__ == "__main__":
    main()
