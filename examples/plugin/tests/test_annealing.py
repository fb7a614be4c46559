"""Run with `pytest` in this folder once the package is installed."""

from methods.testing.contract import MethodContract


class TestAnnealing(MethodContract):
    """Nine tests, from valid placements to going on after a restore."""

    method = "annealing"
