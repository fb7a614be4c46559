"""Ways to spoil what is sound: bytes, JSON documents, YAML text. What is spoiled, and who reads it, stands in ``cases.py``."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

DEEP = 100_000
"""Brackets in a row."""
HUGE = 5_000
"""Digits of a number: more than Python converts from text."""
NAMES = (
    "", " ", "\x00", "a\nb", "\r", "\x1b[31mred\x1b[0m", "\u202etxt.exe", "\ud800", "é" * 300, "🦊", "$\\frac{$", "%s%n", "{0}",
    "<script>alert(1)</script>",
    "=cmd()", "../../etc/passwd", "/dev/null", "con", "-", "--help", "null", "a|b", "[x](y)", "`x`", "\\input{x}", "&", "x" * 5_000,
)  # fmt: skip
"""Words that mean something to a terminal, a file system, a table, a picture, a page."""
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 0.5, 1e308, -1e308, 1e-320, -0.0, float("nan"), float("inf"), -float("inf"), 2**31, 2**63, -(2**63),
    2**64, 10**30,
    "7", "nan", [], {}, [[]], {"a": 1}, [None], [{}], *NAMES,
)  # fmt: skip
"""Anything but what was there."""


def any_bytes(rng: Random, data: bytes) -> bytes:
    """Bytes changed, lost, added or encoded in another way."""
    at = rng.randrange(len(data) or 1)
    part = data[at : at + rng.choice((1, 10, 100))]
    return rng.choice(_BYTES)(rng, data, at, part)


def _flipped(rng: Random, data: bytes, at: int, _: bytes) -> bytes:
    spoilt = bytearray(data)
    for _i in range(rng.choice((1, 1, 1, 8))):
        if spoilt:
            spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
    return bytes(spoilt)


_BYTES: tuple[Callable[[Random, bytes, int, bytes], bytes], ...] = (
    _flipped, _flipped, _flipped,
    lambda rng, data, at, part: data[:at],
    lambda rng, data, at, part: data[at:],
    lambda rng, data, at, part: data[:at] + data[at + len(part) :],
    lambda rng, data, at, part: data[:at] + part + data[at:],
    lambda rng, data, at, part: data[:at] + b"\0" * rng.choice((1, 512)) + data[at:],
    lambda rng, data, at, part: data[:at] + rng.randbytes(16) + data[at:],
    lambda rng, data, at, part: data.replace(b"\n", b"\r\n"),
    lambda rng, data, at, part: data + data,
    lambda rng, data, at, part: rng.randbytes(len(data) % 4096),
    lambda rng, data, at, part: data.decode("latin-1").encode(rng.choice(("utf-16", "utf-32", "utf-8-sig"))),
    lambda rng, data, at, part: b"",
)  # fmt: skip


def any_json(rng: Random, document: Any) -> bytes:
    """A document with one or two things wrong: a value, a key, an order, a cycle; or the text around them."""
    spoilt = json.loads(json.dumps(document))
    for _ in range(rng.choice((1, 1, 2))):
        _spoil(rng, spoilt)
    text = json.dumps(spoilt)
    kind = rng.randrange(12)
    if kind == 0:  # keys twice
        text = text.replace("{", '{"name": 1, "name": "x", ', 1)
    elif kind == 1:
        at = rng.choice([i for i, c in enumerate(text) if c == ":"] or [0])
        text = f"{text[: at + 1]} {'[' * DEEP}"
    elif kind == 2:
        digits = [i for i, c in enumerate(text) if c.isdigit()]
        at = rng.choice(digits or [0])
        text = text[:at] + "9" * HUGE + text[at:]
    return text.encode()


def any_node(rng: Random, document: Any) -> tuple[Any, Any]:
    """Something that holds things, and the key or number of one of them; (None, None) if nothing does."""
    found = [(holder, key) for holder in _holders(document) for key in (holder if isinstance(holder, dict) else range(len(holder)))]
    return rng.choice(found) if found else (None, None)


def _holders(document: Any) -> list[Any]:
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return ([document] if isinstance(document, dict | list) else []) + [h for one in inner for h in _holders(one)]


def _spoil(rng: Random, document: Any) -> None:
    holder, key = any_node(rng, document)
    if holder is None:
        return
    kind = rng.randrange(10)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice((*NAMES, "nmae"))] = rng.choice(VALUES)
    elif kind == 1:
        holder.insert(key, json.loads(json.dumps(holder[key])))
    elif kind == 2:
        other, where = any_node(rng, document)
        holder[key], other[where] = json.loads(json.dumps(other[where])), json.loads(json.dumps(holder[key]))
    elif kind == 3:
        _close_cycle(rng, document)
    else:
        holder[key] = rng.choice(VALUES)


def _close_cycle(rng: Random, document: Any) -> None:
    """An edge backwards, if there are edges."""
    edges = next((h["edges"] for h in _holders(document) if isinstance(h, dict) and isinstance(h.get("edges"), list) and h["edges"]), None)
    if edges is None:
        return
    edge = rng.choice(edges)
    if isinstance(edge, list) and len(edge) >= 2:
        edges.append([edge[1], edge[0], *edge[2:]])
    elif isinstance(edge, dict):
        ends = next((pair for pair in (("from", "to"), ("sourceId", "destId")) if pair[0] in edge and pair[1] in edge), None)
        if ends is not None:
            edges.append({**edge, ends[0]: edge[ends[1]], ends[1]: edge[ends[0]]})


YAML_VALUES = (
    "", "~", ".inf", "-.inf", ".nan", "-1", "0", "1e308", "1e-320", "1e400", "9" * HUGE, "0x" + "f" * HUGE, "true", "[]", "{}",
    "[[[]]]", "[" * 500,
    "{a: " * 500, "&a [*a]", "*nobody", "!!python/object/apply:os.system ['true']", "!!binary aGk=", "2020-01-01", "1:30",
    "0..99999999999", "5..1",
    "99999999999", "'7'", "{include: hostile.yaml}", "{include: ../../../etc/passwd}", "{include: /etc/passwd}",
    "{file: /dev/zero}", "{<<: {a: 1}}",
    '"\\0"', '"\\u202e"', '"\\e[31m"', '"a\\nb"', "'$\\frac{$'", "'=cmd()'", "'<b>'", "|\n  text", "? [a]: b", "'unclosed", "@",
    "`", "\ttab",
)  # fmt: skip


def any_yaml(rng: Random, text: str) -> bytes:
    """YAML with a line or a value changed, or its bytes."""
    lines = text.splitlines()
    if rng.random() < 0.25 or not lines:
        return any_bytes(rng, text.encode())
    for _ in range(rng.choice((1, 1, 1, 2))):
        at = rng.randrange(len(lines))
        kind = rng.randrange(8)
        head, colon, _value = lines[at].partition(":")
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, lines[at])
        elif kind == 2:
            lines.insert(
                at,
                " " * rng.choice((0, 2, 4))
                + rng.choice(("unknown: 1", "- x", "include: hostile.yaml", "budget: 7", "?", "%YAML 9.9", "---")),
            )
        elif kind == 3:
            lines[at] = " " * rng.randrange(6) + lines[at]
        elif kind == 4:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif colon:
            lines[at] = f"{head}: {rng.choice(YAML_VALUES)}"
        if not lines:
            break
    return "\n".join(lines).encode("utf-8", "surrogatepass")
