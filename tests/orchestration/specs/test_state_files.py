import numpy as np
import pytest
import safetensors.numpy
import torch

from envs.problem.errors import InputError
from envs.simulators.fifo.evaluator import Simulator
from orchestration.specs import state_files
from orchestration.specs.files import safe_name
from orchestration.specs.layout import CHECKPOINT
from orchestration.specs.state_files import Damaged, damaged, load_latest, load_state, save_state
from orchestration.trials.run_trial import run_trial
from tests.orchestration.sweeps_for_tests import trial


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


def test_no_flipped_bit_is_overlooked_or_reaches_the_parser(tmp_path, monkeypatch):
    """200 of a learner's real checkpoint, wherever they fall: checksum, header, state or weights."""
    run_trial(trial("gdp", 8, batch=4, checkpoint_every=4), Simulator(), checkpoint_dir=tmp_path)
    path = tmp_path / CHECKPOINT
    data, rng = path.read_bytes(), np.random.default_rng(0)
    assert load_state(path)["runner"]["evaluations"] >= 4
    header = int.from_bytes(data[:8], "little")
    places = [*rng.integers(0, 8 * (8 + header), 100), *rng.integers(0, 8 * len(data), 100)]
    parsed = []
    monkeypatch.setattr(state_files, "load", lambda data: parsed.append(data) or {})
    for place in map(int, places):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(Damaged, match="damaged"):
            load_state(path)
    assert not parsed


def test_a_checkpoint_of_before_there_were_checksums_is_read(tmp_path):
    data = safetensors.numpy.save({"0": np.arange(3)}, {"format": "1", "state": '{"a":{"$array":"0","$kind":"numpy"}}'})
    (tmp_path / "old").write_bytes(data)
    assert same(load_state(tmp_path / "old"), {"a": np.arange(3)})
    (tmp_path / "old").write_bytes(data[:-3])
    with pytest.raises(Damaged):
        load_state(tmp_path / "old")


def test_the_state_before_is_kept_and_found(tmp_path):
    path = tmp_path / "a.safetensors"
    for number in range(3):
        save_state(path, {"number": number}, keep_previous=True)
    assert load_latest(path) == ({"number": 2}, [])
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    state, notes = load_latest(path)
    assert state == {"number": 1} and len(notes) == 1 and "checksum" in notes[0]
    assert damaged(path).exists() and not path.exists()
    assert load_latest(path) == ({"number": 1}, []), "a power cut between the two renames leaves the same"


@pytest.mark.parametrize("name", ["", "..", "a/b", "../a", "a\\b", ".hidden", "a\0", "x" * 200, "a..b"])
def test_names_that_would_leave_their_folder_are_refused(name):
    with pytest.raises(InputError):
        safe_name(name)
    assert safe_name("0f3a-x.ckpt") == "0f3a-x.ckpt"
