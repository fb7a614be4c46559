"""Graph networks that embed operations: GDP's GraphSAGE (equations 2, 3), Mars's GCN (equation 1), Deep Graph Infomax (Mars 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from methods.nets.largest import Largest
from methods.nets.op_features import FeatureEncoder, OpFeatureConfig, OpGraph
from methods.nets.products import Linear


class GraphSage(nn.Module):
    """GraphSAGE with max pooling (GDP section 3.1).

    h_N(v) = max over neighbours u of σ(W h_u + b), zero without neighbours (equation 2);
    h_v = f(h_v ‖ h_N(v)), f a linear layer with ReLU, the last one without (equation 3). Neighbours are those in both
    directions.

    Args:
        features: of the operations, which a linear layer turns into h(0).
        size: H, length of the embeddings.
        rounds: iterations.
    """

    def __init__(self, features: OpFeatureConfig, size: int, rounds: int) -> None:
        super().__init__()
        self.input = FeatureEncoder(features, size)
        self.affine = nn.ModuleList(Linear(size, size) for _ in range(rounds))
        self.dense = nn.ModuleList(Linear(2 * size, size) for _ in range(rounds))

    def aggregate(self, h: Tensor, view: OpGraph, layer: int) -> Tensor:
        """h_N(v) of equation 2, [N, H]."""
        found: Tensor = Largest.apply(torch.sigmoid(self.affine[layer](h)), *view.adjacency)
        return found

    def forward(self, view: OpGraph) -> Tensor:
        h: Tensor = self.input(view)
        for k, dense in enumerate(self.dense):
            h = dense(torch.cat((h, self.aggregate(h, view, k)), dim=1))
            if k + 1 < len(self.dense):
                h = torch.relu(h)
        return h


class Gcn(nn.Module):
    """Layers of PReLU(D^-1/2 (A + I) D^-1/2 X Θ) (Mars, equation 1), with A symmetric.

    Args:
        features: of the operations; Θ of the first layer is the `FeatureEncoder`.
        size: units of every layer.
        layers: how many.
    """

    def __init__(self, features: OpFeatureConfig, size: int, layers: int) -> None:
        super().__init__()
        self.input = FeatureEncoder(features, size)
        self.theta = nn.ModuleList(Linear(size, size, bias=False) for _ in range(layers - 1))
        self.activation = nn.ModuleList(nn.PReLU(size) for _ in range(layers))

    def layers(self, x: Tensor, propagation: Tensor) -> Tensor:
        """The embeddings [N, size] from the first layer's X Θ [N, size]."""
        h = self.activation[0](torch.sparse.mm(propagation, x))
        for theta, activation in zip(self.theta, self.activation[1:], strict=True):
            h = activation(torch.sparse.mm(propagation, theta(h)))
        return h

    def forward(self, view: OpGraph) -> Tensor:
        return self.layers(self.input(view), view.propagation)


class Infomax(nn.Module):
    """The discriminator of Deep Graph Infomax (Mars, equations 4 to 6; Veličković et al. 2019)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bilinear = nn.Parameter(torch.empty(size, size))
        nn.init.xavier_uniform_(self.bilinear)

    def summary(self, h: Tensor) -> Tensor:
        """The readout s = σ(mean of h), [size] (equation 4)."""
        return torch.sigmoid(h.mean(dim=0))

    def score(self, h: Tensor, summary: Tensor) -> Tensor:
        """h W s of every node, [N]; its sigmoid is the probability that h belongs to the graph of s (equation 5)."""
        return h @ (self.bilinear @ summary)

    def forward(self, real: Tensor, corrupted: Tensor) -> Tensor:
        """The loss -1 / 2N (Σ log D(h, s) + Σ log(1 - D(h~, s))) (equation 6), scalar.

        Args:
            real: embeddings of the graph, [N, size].
            corrupted: embeddings of the corrupted graph, [N, size].
        """
        s = self.summary(real)
        positive, negative = self.score(real, s), self.score(corrupted, s)
        return -(nn.functional.logsigmoid(positive).mean() + nn.functional.logsigmoid(-negative).mean()) / 2


def infomax_loss(encoder: Gcn, discriminator: Infomax, view: OpGraph, order: Tensor) -> Tensor:
    """The loss of one graph, corrupted by giving node i the features of node ``order[i]`` (equation 2)."""
    x = encoder.input(view)
    loss: Tensor = discriminator(encoder.layers(x, view.propagation), encoder.layers(x[order], view.propagation))
    return loss
