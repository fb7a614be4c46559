"""The Llama graphs of `envs.graphs.sharded` (DOPPLER, C.3): a decoder block, and the same with embedding and output head."""

from __future__ import annotations

from envs.graphs.sharded_builder import ShardedBuilder, pieces
from envs.problem.errors import InputError
from envs.problem.graph import ComputationGraph


class _Llama:
    """Writes the parts; ``rows`` shards of the sequence times ``columns`` shards of heads, hidden units and vocabulary."""

    def __init__(self, b: ShardedBuilder, sequence: int, width: int, hidden: int, heads: int, rows: int, columns: int) -> None:
        self.b, self.rows, self.columns, self.width = b, rows, columns, width
        self.s = pieces("sequence", sequence, rows)
        self.w = pieces("width", width, columns)
        self.f = pieces("hidden layer", hidden, columns)
        self.heads = pieces("number of heads", heads, columns)
        self.d = pieces("width", width, heads)
        if self.d % 2:
            raise InputError(f"a head has {self.d} dimensions; rotary positions need an even number")
        self.grid = [(i, j) for i in range(rows) for j in range(columns)]

    def norm(self, name: str, x: list[int]) -> list[int]:
        """RMS norm of every row shard: mean square, then scaled by it and by the weights."""
        gamma = self.b.leaves("input", f"{name}.gamma", [(self.width,)])[0]
        square = self.b.each("mean_square", f"{name}.square", [(n,) for n in x], (self.s, 1))
        return self.b.each("normalise", name, [(n, m, gamma) for n, m in zip(x, square, strict=True)])

    def columns_of(self, name: str, x: list[int], width: int) -> list[int]:
        """``x W`` with W cut into columns: one shard a row shard and column shard."""
        weights = self.b.leaves("input", f"W{name}", [(self.width, width)] * self.columns)
        return self.b.each("matmul", name, [(x[i], weights[j]) for i, j in self.grid], (self.s, width))

    def rows_of(self, name: str, x: list[int], width: int) -> list[int]:
        """``x W`` with W cut into rows: partial products, summed over the column shards of ``x``."""
        b, out = self.b, (self.s, self.width)
        weights = b.leaves("input", f"W{name}", [(width, self.width)] * self.columns)
        meta = b.meta()
        parts = [b.add("matmul", f"{name}.{i}.{j}", (x[n], weights[j]), out, meta) for n, (i, j) in enumerate(self.grid)]
        return [b.add("sum", f"{name}.sum.{i}", parts[i * self.columns : (i + 1) * self.columns], out, meta) for i in range(self.rows)]

    def attention(self, x: list[int]) -> list[int]:
        """Causal self-attention; row shard i attends to the keys of row shards 0..i only."""
        b, grid, c = self.b, self.grid, self.columns
        q, k, v = (self.columns_of(n, x, self.w) for n in ("q", "k", "v"))
        meta = b.meta()
        tables = [b.add(f"rope_table:{i * self.s}", f"rope.{i}", (), (self.s, self.d), meta) for i in range(self.rows)]
        headed = (self.heads, self.s, self.d)
        q = b.each("rope", "rope.q", [(q[n], tables[i]) for n, (i, _) in enumerate(grid)], headed)
        k = b.each("rope", "rope.k", [(k[n], tables[i]) for n, (i, _) in enumerate(grid)], headed)
        masks = b.leaves("causal_mask", "mask", [(self.s, self.s * (i + 1)) for i in range(self.rows)])
        keys, values = self._prefixes("keys", k), self._prefixes("values", v)
        spans = [(self.heads, self.s, self.s * (i + 1)) for i, _ in grid]

        def shard(op: str, name: str, operands: list[tuple[int, ...]], column: bool = False) -> list[int]:
            meta = b.meta()
            return [
                b.add(op, f"{name}.{n}", x, (*span[:-1], 1) if column else span, meta)
                for n, (x, span) in enumerate(zip(operands, spans, strict=True))
            ]

        scale = b.leaves(f"fill:{self.d**-0.5!r}", "scale", [(1,)])[0]
        scores = shard("scores", "scores", list(zip(q, keys, strict=True)))
        scaled = shard("scale", "scaled", [(n, scale) for n in scores])
        masked = shard("mask_add", "masked", [(n, masks[m // c]) for m, n in enumerate(scaled)])
        peak = shard("row_max", "max", [(n,) for n in masked], column=True)
        power = shard("exp_sub", "exp", list(zip(masked, peak, strict=True)))
        norm = shard("row_sum", "norm", [(n,) for n in power], column=True)
        weight = shard("row_div", "attention", list(zip(power, norm, strict=True)))
        context = b.each("attend", "context", list(zip(weight, values, strict=True)), (self.s, self.w))
        return self.rows_of("o", context, self.w)

    def _prefixes(self, name: str, x: list[int]) -> list[int]:
        """For each shard (i, j) the rows 0..i of column shard j joined; the first rows are their own prefix."""
        b, c = self.b, self.columns
        meta, result = b.meta(), []
        for n, (i, j) in enumerate(self.grid):
            if i == 0:
                result.append(x[n])
                continue
            shape = b.shape(x[n])
            shape = (*shape[:-2], shape[-2] * (i + 1), shape[-1])
            result.append(b.add("concat_rows", f"{name}.{i}.{j}", [x[h * c + j] for h in range(i + 1)], shape, meta))
        return result

    def feed_forward(self, x: list[int]) -> list[int]:
        """``(silu(x W1) * x W3) W2``."""
        b = self.b
        gate, up = self.columns_of("1", x, self.f), self.columns_of("3", x, self.f)
        gated = b.each("mul", "gated", list(zip(b.each("silu", "silu", [(n,) for n in gate]), up, strict=True)))
        return self.rows_of("2", gated, self.f)

    def block(self, x: list[int]) -> list[int]:
        """Attention and feed-forward, each behind a norm and with a residual."""
        b = self.b
        h = b.each("add", "residual1", list(zip(x, self.attention(self.norm("norm1", x)), strict=True)))
        out = b.each("add", "residual2", list(zip(h, self.feed_forward(self.norm("norm2", h)), strict=True)))
        return b.each("formation", "block", [(n,) for n in out])

    def embedding(self, vocabulary: int) -> list[int]:
        """Rows of a table cut into columns, selected by token ids and joined."""
        b = self.b
        ids = b.leaves(f"token_ids:{vocabulary}", "tokens", [(self.s,)] * self.rows)
        table = b.leaves("input", "embedding", [(vocabulary, self.w)] * self.columns)
        found = b.each("gather", "embedded", [(table[j], ids[i]) for i, j in self.grid], (self.s, self.w))
        joined = [found[i * self.columns : (i + 1) * self.columns] for i in range(self.rows)]
        return b.each("concat_cols", "x", joined, (self.s, self.width))

    def head(self, x: list[int], vocabulary: int) -> list[int]:
        """Norm, product with the vocabulary, temperature, softmax."""
        b, c, s = self.b, self.columns, self.s
        part = self.columns_of("head", self.norm("final", x), pieces("vocabulary", vocabulary, c))
        logits = b.each("concat_cols", "logits", [part[i * c : (i + 1) * c] for i in range(self.rows)], (s, vocabulary))
        temperature = b.leaves("fill:1.0", "temperature", [(1,)])[0]
        logits = b.each("scale", "tempered", [(n, temperature) for n in logits])
        peak = b.each("row_max", "head.max", [(n,) for n in logits], (s, 1))
        power = b.each("exp_sub", "head.exp", list(zip(logits, peak, strict=True)))
        norm = b.each("row_sum", "head.norm", [(n,) for n in power], (s, 1))
        return b.each("formation", "Y", [(n,) for n in b.each("row_div", "probabilities", list(zip(power, norm, strict=True)))])


def llama_block(
    sequence: int = 4096, width: int = 4096, hidden: int = 11_008, heads: int = 32, rows: int = 2, columns: int = 4,
    element_bytes: int = 2, name: str = "llama-block",
) -> ComputationGraph:  # fmt: skip
    """A Llama decoder block from hidden states to hidden states, batch 1."""
    b = ShardedBuilder(name, element_bytes)
    llama = _Llama(b, sequence, width, hidden, heads, rows, columns)
    llama.block(b.leaves("input", "X", [(llama.s, width)] * rows))
    return b.build()


def llama_layer(
    sequence: int = 4096, width: int = 4096, hidden: int = 11_008, heads: int = 32, vocabulary: int = 32_000, rows: int = 2,
    columns: int = 4, element_bytes: int = 2, name: str = "llama-layer",
) -> ComputationGraph:  # fmt: skip
    """The whole of Figure 5 with one layer: token embedding, the block, norm, output head and softmax, batch 1."""
    b = ShardedBuilder(name, element_bytes)
    llama = _Llama(b, sequence, width, hidden, heads, rows, columns)
    llama.head(llama.block(llama.embedding(vocabulary)), vocabulary)
    return b.build()
