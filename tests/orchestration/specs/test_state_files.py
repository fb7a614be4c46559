import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from orchestration.specs.files import safe_name
from orchestration.specs.state_files import load_state, save_state


def same(a, b):
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b) and a.shape == b.shape
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and a == b


def test_any_state_comes_back_as_it_was(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimiser.step()
    state = {
        "rng": np.random.default_rng(1).bit_generator.state,
        "old": np.random.RandomState(1).get_state(legacy=False),
        "weights": dict(model.state_dict()),
        "optimiser": optimiser.state_dict(),
        "torch": torch.get_rng_state(),
        "half": torch.ones(2, 2, dtype=torch.bfloat16),
        "transposed": np.arange(6).reshape(2, 3).T,
        "nothing": np.zeros((0, 4), dtype=np.int16),
        "scalar": np.float64(0.1),
        "mixed": [(1, "a"), {"x": None}, float("inf"), True],
        "$odd": {2: "key"},
    }
    save_state(tmp_path / "a.ckpt", state)
    assert same(state, load_state(tmp_path / "a.ckpt"))
    assert [p.name for p in tmp_path.iterdir()] == ["a.ckpt"]


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array(["a"]), np.array([1j])])
def test_what_cannot_be_kept_is_named(tmp_path, value):
    with pytest.raises(InputError, match=r"state\.a\.b"):
        save_state(tmp_path / "a", {"a": {"b": value}})
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path):
    path = tmp_path / "a"
    save_state(path, {"a": np.arange(100)})
    for size in (0, 7, 60, path.stat().st_size - 10):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(InputError, match="damaged"):
            load_state(path)
        save_state(path, {"a": np.arange(100)})
    with pytest.raises(InputError, match="no checkpoint"):
        load_state(tmp_path / "missing")


@pytest.mark.parametrize("name", ["", "..", "a/b", "../a", "a\\b", ".hidden", "a\0", "x" * 200, "a..b"])
def test_names_that_would_leave_their_folder_are_refused(name):
    with pytest.raises(InputError):
        safe_name(name)
    assert safe_name("0f3a-x.ckpt") == "0f3a-x.ckpt"
