"""One table of text in five dresses: terminal, Markdown, CSV, LaTeX; a report's JSON is made from the numbers. Nothing is computed here."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FORMATS = ("table", "json", "csv", "latex", "markdown")


def plural(n: int, what: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


@dataclass(frozen=True)
class Table:
    """A titled table of text; the first ``left`` columns are words, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    left: int = 1
    footer: int = 0
    """How many of the last rows are references (best known, lower bound) and stand below a rule."""

    def __post_init__(self) -> None:
        ragged = [row for row in self.rows if len(row) != len(self.columns)]
        if ragged:
            raise ValueError(f"table {self.title!r} has {len(self.columns)} columns but a row of {len(ragged[0])}: {ragged[0]}")


def terminal(tables: Sequence[Table], width: int | None = None, colour: bool = False) -> str:
    """Tables for a terminal of ``width`` columns (None: as wide as they are), drawn by rich; tables too wide are cut by columns."""
    from rich.console import Console
    from rich.text import Text

    # A table is drawn as wide as it needs: wrapped numbers cannot be compared, and a pager or a wider window can show the rest.
    buffer = io.StringIO()
    console = Console(file=buffer, width=10_000, force_terminal=colour, color_system="standard" if colour else None, highlight=False)
    for table in tables:
        console.print(Text(table.title, style="bold"))
        for part in _fitting(table, width):
            console.print(_rich(part))
        for note in table.notes:
            console.print(Text(note, style="dim"))
        console.print()
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _rich(table: Table) -> object:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for i, name in enumerate(table.columns):
        drawn.add_column(Text(name), justify="left" if i < table.left else "right", no_wrap=True)
    last = len(table.rows) - table.footer
    for k, row in enumerate(table.rows):
        drawn.add_row(*(Text(cell) for cell in row), end_section=table.footer > 0 and k == last - 1)
    return drawn


def _fitting(table: Table, width: int | None) -> list[Table]:
    """The table, or several that repeat its first columns where it is wider than ``width``."""
    from rich.cells import cell_len

    sizes = [max(cell_len(x) for x in column) + 3 for column in zip(table.columns, *table.rows, strict=True)]
    head = sum(sizes[: table.left])
    if width is None or sum(sizes) - 2 <= width:
        return [table]
    groups: list[list[int]] = [[]]
    used = head
    for i in range(table.left, len(sizes)):
        if groups[-1] and used + sizes[i] - 2 > width:
            groups.append([])
            used = head
        groups[-1].append(i)
        used += sizes[i]
    parts = []
    for group in groups:
        keep = [*range(table.left), *group]
        rows = tuple(tuple(row[i] for i in keep) for row in table.rows)
        parts.append(Table(table.title, tuple(table.columns[i] for i in keep), rows, (), table.left, table.footer))
    return parts


def markdown(tables: Sequence[Table]) -> str:
    """GitHub's Markdown."""
    parts = []
    for table in tables:
        rule = [":--" if i < table.left else "--:" for i in range(len(table.columns))]
        body = ["| " + " | ".join(_pipe(c) for c in row) + " |" for row in (table.columns, *table.rows)]
        body.insert(1, "|" + "|".join(rule) + "|")
        parts.append("\n".join([f"### {table.title}", "", *body, "", *(f"{note}\n" for note in table.notes)]))
    return "\n".join(parts)


def _pipe(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


def delimited(table: Table) -> str:
    """CSV of one table."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue()


def long_form(tables: Sequence[Table]) -> str:
    """CSV of several tables, one line a cell: title, number of the row from 1, its words, column, value."""
    cells = [
        (t.title, f"{number}", " / ".join(w for w in row[: t.left] if w), column, value)
        for t in tables
        for number, row in enumerate(t.rows, 1)
        for column, value in zip(t.columns[t.left :], row[t.left :], strict=True)
    ]
    return delimited(Table("", ("table", "row", "label", "column", "value"), tuple(cells)))


def as_json(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Tables as lists of text, for programs."""
    return [{"title": t.title, "columns": list(t.columns), "rows": [list(r) for r in t.rows], "notes": list(t.notes)} for t in tables]


def dress(tables: Sequence[Table], style: str, width: int | None = None, colour: bool = False) -> str:
    """Tables in one of `FORMATS`; JSON is a list of tables, CSV has one line a cell."""
    if style == "table":
        return terminal(tables, width, colour)
    if style == "json":
        return json.dumps(as_json(tables), indent=2, ensure_ascii=False) + "\n"
    return {"csv": long_form, "latex": latex, "markdown": markdown}[style](tables)


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "−": "$-$", "×": r"$\times$", "·": r"$\cdot$",
    "<": "$<$", ">": "$>$", "≤": r"$\leq$", "∞": r"$\infty$", "…": r"\ldots{}", "µ": r"$\mu$", "√": r"$\surd$",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Text as LaTeX sets it literally."""
    return re.sub(".", lambda m: _LATEX.get(m[0], m[0]), text)


def latex(tables: Sequence[Table]) -> str:
    """``table`` environments in the manner of the booktabs package."""
    parts = []
    for table in tables:
        align = "l" * table.left + "r" * (len(table.columns) - table.left)
        lines = [" & ".join(escape_latex(c) for c in row) + r" \\" for row in table.rows]
        if table.footer:
            lines.insert(len(lines) - table.footer, r"\midrule")
        caption = " ".join([f"{table.title}.", *table.notes])
        head = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(caption)}}}"]
        head += [rf"\begin{{tabular}}{{{align}}}", r"\toprule", " & ".join(escape_latex(c) for c in table.columns) + r" \\", r"\midrule"]
        parts.append("\n".join([*head, *lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]))
    return "\n".join(parts)
