"""Tables of words and numbers, and their five forms: terminal, Markdown, LaTeX, and for programs CSV and JSON. Nothing is computed here."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from orchestration.analysis import escape
from orchestration.analysis.quantity import Quantity, TableCell, finite

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("table", "json", "csv", "latex", "markdown")
NUMBERS = ("value", "low", "high", "deviation", "error", "n", "of")
"""Numbers of a `Quantity` that have a column in every long table; others follow where there are some."""

BETWEEN = 2
"""Columns of a terminal between two columns of a table."""


def plural(n: int, what: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


@dataclass(frozen=True)
class Table:
    """A titled table; the first ``left`` columns are words, the others numbers, or words where there is no number."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    notes: tuple[str, ...] = ()
    left: int = 1
    footer: int = 0
    """How many of the last rows are references (best known, lower bound) and stand below a rule."""

    def __post_init__(self) -> None:
        ragged = [row for row in self.rows if len(row) != len(self.columns)]
        if ragged:
            raise ValueError(f"table {self.title!r} has {len(self.columns)} columns but a row of {len(ragged[0])}: {ragged[0]}")

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The rows as people read them."""
        return tuple(tuple(str(cell) for cell in row) for row in self.rows)


def terminal(tables: Sequence[Table], width: int | None = None, colour: bool = False) -> str:
    """Tables for a terminal of ``width`` columns (None: as wide as they are), drawn by rich; tables too wide are cut by columns."""
    # A table is drawn as wide as it needs: wrapped numbers cannot be compared, and a pager or a wider window can show the rest.
    buffer = io.StringIO()
    console = Console(file=buffer, width=10_000, force_terminal=colour, color_system="standard" if colour else None, highlight=False)
    for table in tables:
        console.print(Text(escape.plain(table.title), style="bold"))
        for part in _fitting(_plain(table), width):
            console.print(_rich(part))
        for note in table.notes:
            console.print(Text(escape.plain(note), style="dim"))
        console.print()
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _plain(table: Table) -> Table:
    """With the texts of its cells."""
    rows = tuple(tuple(escape.plain(cell) for cell in row) for row in table.texts)
    return replace(table, columns=tuple(map(escape.plain, table.columns)), rows=rows)


def _rich(table: Table) -> object:

    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 0, 0, BETWEEN - 1))
    for i, name in enumerate(table.columns):
        drawn.add_column(Text(name), justify="left" if i < table.left else "right", no_wrap=True)
    last = len(table.rows) - table.footer
    for k, row in enumerate(table.texts):
        drawn.add_row(*(Text(cell) for cell in row), end_section=table.footer > 0 and k == last - 1)
    return drawn


def _fitting(table: Table, width: int | None) -> list[Table]:
    """The table, or several that repeat its first columns where it is wider than ``width``."""
    sizes = [max(cell_len(x) for x in column) + BETWEEN for column in zip(table.columns, *table.texts, strict=True)]
    head = sum(sizes[: table.left])
    if width is None or sum(sizes) - BETWEEN <= width:
        return [table]
    groups: list[list[int]] = [[]]
    used = head
    for i in range(table.left, len(sizes)):
        if groups[-1] and used + sizes[i] - BETWEEN > width:
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
    """The tables in GitHub's dialect of Markdown."""
    parts = []
    for table in tables:
        rule = [":--" if i < table.left else "--:" for i in range(len(table.columns))]
        body = ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in (table.columns, *table.rows)]
        body.insert(1, "|" + "|".join(rule) + "|")
        notes = [f"{escape.markdown(note)}\n" for note in table.notes]
        parts.append("\n".join([f"### {escape.markdown(table.title)}", "", *body, "", *notes]))
    return "\n".join(parts)


def _markdown_cell(cell: TableCell) -> str:
    # Numbers hold nothing to escape but the sign of a comparison.
    return escape.markdown(cell) if isinstance(cell, str) else str(cell).replace("<", "&lt;")


def latex(tables: Sequence[Table]) -> str:
    """``table`` environments in the manner of the booktabs package."""
    parts = []
    for table in tables:
        align = "l" * table.left + "r" * (len(table.columns) - table.left)
        head, *lines = (escape.latex_row(map(escape.latex, row)) for row in (table.columns, *table.texts))
        if table.footer:
            lines.insert(len(lines) - table.footer, r"\midrule")
        caption = escape.latex(" ".join([f"{table.title}.", *table.notes]))
        begin = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
        begin += [rf"\begin{{tabular}}{{{align}}}", r"\toprule", head, r"\midrule"]
        parts.append("\n".join([*begin, *lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]))
    return "\n".join(parts)


def as_json(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Tables for programs: a cell is a word, or its numbers by name with their unit."""
    return [
        {
            "title": t.title, "columns": list(t.columns), "notes": list(t.notes),
            "rows": [[cell.to_json() if isinstance(cell, Quantity) else cell for cell in row] for row in t.rows],
        }
        for t in tables
    ]  # fmt: skip


def long_table(tables: Sequence[Table]) -> pd.DataFrame:
    """All tables as one, a line a cell: table, number of the row from 1, the row's words, column, the numbers, their unit, and the
    words of a cell without number."""
    lines: list[dict[str, Any]] = []
    for table in tables:
        for number, row in enumerate(table.rows, 1):
            label = " / ".join(text for cell in row[: table.left] if (text := str(cell)))
            for column, cell in zip(table.columns[table.left :], row[table.left :], strict=True):
                content = cell.to_json() if isinstance(cell, Quantity) else {"words": cell}
                lines.append({"table": table.title, "row": number, "label": label, "column": column, **content})
    further = dict.fromkeys(key for line in lines for key in line if key not in (*_PLACE, *NUMBERS, "unit", "words"))
    return pd.DataFrame(lines, columns=[*_PLACE, *NUMBERS, *further, "unit", "words"], dtype=object)


_PLACE = ("table", "row", "label", "column")


def delimited(frame: pd.DataFrame) -> str:
    """CSV: numbers in full precision, empty where infinite or unknown; words that no spreadsheet takes for a formula."""

    def shown(value: Any) -> Any:
        if isinstance(value, str):
            return escape.csv_words(value)
        return "" if value is None or (number := finite(value)) is None else number

    return frame.astype(object).map(shown).to_csv(index=False, lineterminator="\n")


def dress(tables: Sequence[Table], style: str, width: int | None = None, colour: bool = False) -> str:
    """Tables in one of `FORMATS`; JSON is a list of tables, CSV has one line a cell."""
    forms: Mapping[str, Any] = {
        "json": lambda: json.dumps(as_json(tables), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        "csv": lambda: delimited(long_table(tables)),
        "latex": lambda: latex(tables),
        "markdown": lambda: markdown(tables),
    }
    return forms[style]() if style in forms else terminal(tables, width, colour)
