"""Noise shared by all simulators: a counter-based generator, so that any row of any batch can be drawn on its own."""

from __future__ import annotations

import numba
import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)


def noise_key(seed: int) -> np.uint64:
    """The 64-bit key of a seed's noise streams, derived by `numpy.random.SeedSequence`."""
    return np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]


@numba.njit(cache=True, nogil=True)
def _mix(z):
    """The finaliser of SplitMix64: a bijection of 64-bit words whose outputs pass as independent for consecutive inputs."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_A
    z = (z ^ (z >> np.uint64(27))) * _MIX_B
    return z ^ (z >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def row_key(key, row):
    """The key of one placement's stream: row ``first + i`` of seed's ``key``."""
    return _mix(key + _mix(np.uint64(row) * _GOLDEN + np.uint64(1)))


@numba.njit(cache=True, nogil=True)
def noise_factor(stream, counter, sigma):
    """The ``counter``-th factor of a stream, uniform in [1 - sigma, 1 + sigma) (GiPH Appendix B.5)."""
    bits = _mix(stream + np.uint64(counter + 1) * _GOLDEN) >> np.uint64(11)
    return 1.0 + sigma * (2.0 * (np.float64(bits) * 2.0**-53) - 1.0)
