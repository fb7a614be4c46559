"""Names that come from outside, made safe for where they are printed: terminal, Markdown, CSV, LaTeX, pictures.

A name may hold anything that its file may. Nothing else escapes text; who prints asks here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that turn the direction of the text behind them."""


def plain(text: str) -> str:
    """One line without control characters: line ends and tabs become spaces, the others are written as Python writes them.

    What is left cannot move a terminal's cursor, change its colours, or break a line of a table or an XML file.
    """
    if text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(letter: str) -> str:
    if letter in "\n\r\t\v\f\x85\u2028\u2029":
        return " "
    hidden = unicodedata.category(letter) in ("Cc", "Cs", "Cn", "Co") or letter in _BIDIRECTIONAL
    return ascii(letter)[1:-1] if hidden else letter


_MARKDOWN = re.compile(r"([\\|*_`\[\]~#])")


def markdown(text: str) -> str:
    """Text as GitHub's Markdown shows it literally: no cells, emphasis, links, addresses, images or HTML come of it."""
    text = _MARKDOWN.sub(r"\\\1", plain(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"(?i)\b(https?|ftp|mailto|xmpp)(:)|\b(www)(\.)", lambda m: f"{m[1] or m[3]}\\{m[2] or m[4]}", text)


def csv_words(text: str) -> str:
    """Words of a CSV file that a spreadsheet does not take for a formula: an apostrophe goes before ``=``, ``+``, ``-`` and ``@``."""
    text = plain(text)
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") else text


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "−": "$-$", "×": r"$\times$", "·": r"$\cdot$",
    "<": "$<$", ">": "$>$", "≤": r"$\leq$", "∞": r"$\infty$", "…": r"\ldots{}", "µ": r"$\mu$", "√": r"$\surd$",
}  # fmt: skip


def latex(text: str) -> str:
    """Text as LaTeX sets it literally."""
    return re.sub(".", lambda m: _LATEX.get(m[0], m[0]), plain(text))


def latex_row(cells: Iterable[str]) -> str:
    r"""Cells, escaped before, as a row; a first one in brackets or with a star is no option of the ``\\`` of the row above."""
    line = " & ".join(cells)
    return ("{}" if line[:1] in ("[", "*") else "") + line + r" \\"


def literal(figure: Figure) -> None:
    """Have all text of a matplotlib figure drawn as it stands: a ``$`` in a name begins no formula."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if isinstance(text, Text):
            text.set_parse_math(False)
            text.set_text(plain(text.get_text()))
