"""What every method must do, over the registry: a new method is covered the moment its file is there."""

import pytest

from methods.contract.registry import names
from methods.testing.contract import MethodContract
from orchestration.specs.state_files import load_state, save_state


@pytest.mark.parametrize("name", names())
class TestEveryMethod(MethodContract):
    def through_a_checkpoint(self, state, folder):
        save_state(folder / "state.safetensors", state)
        return load_state(folder / "state.safetensors")
