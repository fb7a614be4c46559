"""Compiled components against SciPy's: the same numbers, whichever way edges are written."""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from methods.placing.coarsening import components


def test_components_are_numbered_as_scipy_s():
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = int(rng.integers(1, 60))
        edges = rng.integers(0, n, (int(rng.integers(0, 60)), 2))
        expected = connected_components(coo_array((np.ones(len(edges)), edges.T), shape=(n, n)), directed=False)[1]
        np.testing.assert_array_equal(components(n, edges), expected)
