"""What every learner is: a network made from the seed, a `Learner` of its weights, a policy that transfers. Not how it searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from envs.problem.errors import InputError
from methods.contract.method import Method
from methods.learning.reinforce import Learner, LearningConfig, seeded_network

NETWORK = 0
"""The seed's stream that a network is initialised from; other streams of a learner have other numbers."""


class LearnedMethod(Method):
    """A method with weights. ``__init__`` of a subclass calls `learn_with` once it knows the sizes of its network."""

    network: nn.Module
    learner: Learner

    def learn_with(self, build: Callable[[], nn.Module], learning: LearningConfig) -> None:
        """Make the network, initialised from the seed, and what changes its weights."""
        self.network = seeded_network(build, self.stream(NETWORK))
        self.learner = Learner(self.network, learning)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "learner": self.learner.state()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.learner.restore(state["learner"])

    def policy(self) -> dict[str, Any]:
        return {"network": weights(self.network)}

    def load_policy(self, policy: dict[str, Any]) -> None:
        load_weights(self.network, policy.get("network", {}), type(self).__name__)

    def report(self) -> dict[str, float]:
        """Updates of the weights so far."""
        return {"updates": float(self.learner.updates)}


def weights(network: nn.Module) -> dict[str, Tensor]:
    """A copy of all that a network knows, by name."""
    return {key: value.clone() for key, value in network.state_dict().items()}


def load_weights(network: nn.Module, given: Mapping[str, Tensor], owner: str) -> None:
    """Take over the weights of another network of the same sizes; InputError naming one that does not fit."""
    own = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    shapes = {key: tuple(value.shape) for key, value in given.items()}
    if own != shapes:
        wrong = next(key for key in sorted({*own, *shapes}) if own.get(key) != shapes.get(key))
        raise InputError(
            f"the policy does not fit this configuration of {owner}: {wrong} has shape {shapes.get(wrong)}, not {own.get(wrong)}; "
            "use the settings it was trained with"
        )
    network.load_state_dict(given)
