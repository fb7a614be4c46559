"""ChainMM, FFNN, Llama-block and Llama-layer cut into shards (DOPPLER, Appendix C). No costs in seconds belong here.

Each builder takes the sizes of the tensors and the grid of shards. The default sizes are the paper's; the default grids
give its node counts, which it states without the decomposition:

========================  =====================  ==========================================================================
graph                     grid                   nodes
========================  =====================  ==========================================================================
ChainMM, 112 nodes        rows 2, inner 4,       40 inputs (5 matrices of 8 blocks), 48 products, 12 sums, 8 selections that
                          columns 2              cut D x E from 2 to 4 block rows, 4 additions: **112**, exact
FFNN, 192 nodes           batch 4, hidden 8      32 inputs (X 4, W1 8, b1 8, W2 8, b2 4), 32 each of product, bias, ReLU,
                                                 second product, and 4 each of sum, formation, bias and the 5 steps of
                                                 softmax: **192**, exact
Llama-block, 215 nodes    sequence 2, columns 4  decoder block from hidden states: **215**, exact
Llama-layer, 215 nodes    sequence 2, columns 4  the block between a token embedding and the output head with softmax:
(261 in section 5.3)                             **261**; Appendix C gives 215 for both Llama graphs, section 5.3 speaks of
                                                 "8k episodes x 261 steps" for the largest, which we take to be this one
========================  =====================  ==========================================================================

``sharded(name, shards=n)`` instead gives every operator the n shards that Appendix A speaks of.
Meta-ops are kept in ``ComputationGraph.meta_op``; inside one, the nodes without a parent in it are its ShardOps and the
others its ReduceOps (`shard_ops`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from envs.graphs.sharded_builder import Shape, ShardedBuilder, pieces
from envs.graphs.sharded_llama import llama_block, llama_layer
from envs.problem.errors import InputError, nearest
from envs.problem.graph import ComputationGraph


def chainmm(
    size: int = 10_000, rows: int = 2, inner: int = 4, columns: int = 2, element_bytes: int = 2, name: str = "chainmm"
) -> ComputationGraph:
    """``(A x B) + (C x (D x E))`` of ``size`` x ``size`` matrices (C.1); every product is ``rows * inner * columns`` block products."""
    b = ShardedBuilder(name, element_bytes)
    r, k, c = (pieces("matrix size", size, n) for n in (rows, inner, columns))
    left, right = [(r, k)] * (rows * inner), [(k, c)] * (inner * columns)
    a_, b_, c_, d_, e_ = (b.leaves("input", x, s) for x, s in zip("ABCDE", (left, right, left, left, right), strict=True))

    def product(what: str, x: list[int], y: list[int]) -> list[int]:
        """Blocks ``x[rows][inner]`` times ``y[inner][columns]``, summed over inner, as one meta-op."""
        meta = b.meta()
        blocks = {
            (i, j, h): b.add("matmul", f"{what}.{i}.{h}.{j}", (x[i * inner + h], y[h * columns + j]), (r, c), meta)
            for i in range(rows) for h in range(inner) for j in range(columns)
        }  # fmt: skip
        if inner == 1:
            return [blocks[i, j, 0] for i in range(rows) for j in range(columns)]
        return [
            b.add("sum", f"{what}.sum.{i}.{j}", [blocks[i, j, h] for h in range(inner)], (r, c), meta)
            for i in range(rows) for j in range(columns)
        ]  # fmt: skip

    de = _repartition(b, product("DE", d_, e_), rows, inner, columns, (k, c))
    cde = product("CDE", c_, de)
    ab = product("AB", a_, b_)
    b.each("add", "Y", list(zip(ab, cde, strict=True)))
    return b.build()


def _repartition(b: ShardedBuilder, blocks: list[int], rows: int, wanted: int, columns: int, shape: Shape) -> list[int]:
    """Blocks of a ``rows`` x ``columns`` grid cut or joined to ``wanted`` x ``columns``, as one meta-op."""
    if rows == wanted:
        return blocks
    meta = b.meta()
    if wanted % rows == 0:
        per = wanted // rows
        return [
            b.add(f"select:{i % per}", f"cut.{i}.{j}", (blocks[(i // per) * columns + j],), shape, meta)
            for i in range(wanted) for j in range(columns)
        ]  # fmt: skip
    if rows % wanted:
        raise InputError(f"a grid of {rows} block rows cannot become {wanted}; make one a multiple of the other")
    per = rows // wanted
    return [
        b.add("concat_rows", f"join.{i}.{j}", [blocks[(i * per + h) * columns + j] for h in range(per)], shape, meta)
        for i in range(wanted) for j in range(columns)
    ]  # fmt: skip


def ffnn(
    batch: int = 2**15, width: int = 2**5, hidden: int = 2**16, rows: int = 4, columns: int = 8, element_bytes: int = 2, name: str = "ffnn"
) -> ComputationGraph:
    """``softmax(ReLU(X W1 + b1) W2 + b2)`` (C.2): the batch cut into ``rows``, the hidden layer into ``columns``."""
    b = ShardedBuilder(name, element_bytes)
    r, h = pieces("batch", batch, rows), pieces("hidden layer", hidden, columns)
    x = b.leaves("input", "X", [(r, width)] * rows)
    w1 = b.leaves("input", "W1", [(width, h)] * columns)
    b1 = b.leaves("input", "b1", [(h,)] * columns)
    w2 = b.leaves("input", "W2", [(h, width)] * columns)
    b2 = b.leaves("input", "b2", [(width,)] * rows)
    grid = [(i, j) for i in range(rows) for j in range(columns)]
    xw = b.each("matmul", "XW1", [(x[i], w1[j]) for i, j in grid], (r, h))
    biased = b.each("bias_add", "bias1", [(xw[n], b1[j]) for n, (_, j) in enumerate(grid)])
    relu = b.each("relu", "relu", [(n,) for n in biased])
    meta = b.meta()
    part = [b.add("matmul", f"HW2.{i}.{j}", (relu[n], w2[j]), (r, width), meta) for n, (i, j) in enumerate(grid)]
    total = [b.add("sum", f"HW2.sum.{i}", part[i * columns : (i + 1) * columns], (r, width), meta) for i in range(rows)]
    formed = b.each("formation", "formed", [(n,) for n in total])
    logits = b.each("bias_add", "bias2", list(zip(formed, b2, strict=True)))
    peak = b.each("row_max", "max", [(n,) for n in logits], (r, 1))
    power = b.each("exp", "exp", [(n,) for n in b.each("sub", "shift", list(zip(logits, peak, strict=True)))])
    norm = b.each("row_sum", "norm", [(n,) for n in power], (r, 1))
    b.each("row_div", "Y", list(zip(power, norm, strict=True)))
    return b.build()


GRAPHS: dict[str, Callable[..., ComputationGraph]] = {
    "chainmm": chainmm,
    "ffnn": ffnn,
    "llama-block": llama_block,
    "llama-layer": llama_layer,
}


def sharded(name: str, shards: int | None = None, **sizes: int) -> ComputationGraph:
    """The graph called ``name``; ``shards=n`` cuts every operator into n shards (Appendix A) in place of the paper's node counts.

    Raises:
        InputError: for an unknown name or setting, or sizes that the shards do not divide.
    """
    if name not in GRAPHS:
        raise InputError(f"unknown sharded graph {name!r}{nearest(name, GRAPHS)}")
    builder = GRAPHS[name]
    known = builder.__code__.co_varnames[: builder.__code__.co_argcount]
    for key in sizes:
        if key not in known:
            raise InputError(f"unknown setting {key!r} of sharded graph {name!r}{nearest(key, known)}")
    if shards is not None:
        rows, columns = _grid(shards)
        sizes = {"rows": rows, "columns": columns, **({"inner": 1} if name == "chainmm" else {}), **sizes}
        if name == "chainmm" and shards == 8:  # Fig. 1: each matrix four ways, eight block products
            sizes = {**sizes, "rows": 2, "inner": 2, "columns": 2}
    return builder(**sizes)


def _grid(shards: int) -> tuple[int, int]:
    """The most nearly square rows x columns with ``rows * columns == shards`` and rows <= columns."""
    if shards < 1:
        raise InputError(f"shards is {shards}; an operator has at least one")
    rows = max(r for r in range(1, int(shards**0.5) + 1) if shards % r == 0)
    return rows, shards // rows


def shard_ops(graph: ComputationGraph) -> np.ndarray:
    """Which nodes are ShardOps of their meta-op, bool[V]; the other nodes with a meta-op are its ReduceOps (Appendix A)."""
    u, v = graph.edges[:, 0], graph.edges[:, 1]
    inside = (graph.meta_op[u] == graph.meta_op[v]) & (graph.meta_op[v] >= 0)
    is_shard = graph.meta_op >= 0
    is_shard[v[inside]] = False
    return is_shard
