"""Run with `pytest` in this folder once the package is installed."""

from placewright_example.busiest_device import BusiestDevice

from envs.testing.contract import EvaluatorContract


class TestBusiestDevice(EvaluatorContract):
    """Outcomes, columns, seeds and all else that every evaluator promises."""

    def make(self) -> BusiestDevice:
        """Without launch times."""
        return BusiestDevice()

    def others(self) -> list[BusiestDevice]:
        """Launch times change what is measured."""
        return [BusiestDevice(launch=0.5), BusiestDevice(launch=1.0)]
