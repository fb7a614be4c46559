"""DeviceNetwork: what it refuses, and its free diagonal."""

import numpy as np
import pytest
from hypothesis import given

from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork
from tests.envs.strategies import networks


def network(**changes):
    fields = {"names": ("a", "b"), "speed": [1, 2], "bandwidth": 3.0, "delay": [[0, 1], [2, 0]]}
    return DeviceNetwork(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ()}, "has no devices"),
        ({"names": ("a", "a")}, "two devices named 'a'"),
        ({"names": tuple(f"d{i}" for i in range(40_000))}, "40000 devices; placements are int16"),
        ({"speed": [1, 2, 3]}, r"2 devices, so speed must have shape \(2,\), not \(3,\)"),
        ({"delay": [1, 2]}, r"delay must have shape \(2, 2\), not \(2,\)"),
        ({"kinds": ("cpu",)}, "2 devices but 1 values of kinds"),
        ({"supports": (frozenset(),)}, "2 devices but 1 values of supports"),
        ({"speed": [1, 0]}, "device 'b' of network 'network' has speed = 0.0; it must be a number from 1e-50 to 1e\\+50"),
        ({"speed": [np.inf, 1]}, "device 'a' .* has speed = inf"),
        ({"speed": [np.nan, 1]}, "device 'a' .* has speed = nan"),
        ({"memory": [1, -1]}, "device 'b' .* has memory = -1.0; it must be at least 0"),
        ({"memory": [1, np.nan]}, "device 'b' .* has memory = nan"),
        ({"memory_bandwidth": 0.0}, "device 'a' .* has memory_bandwidth = 0.0"),
        ({"power": [0, -1]}, "device 'b' .* has power = -1.0; it must be a number from 0 to 1e\\+50"),
        ({"idle_power": [0, np.inf]}, "device 'b' .* has idle_power = inf"),
        ({"launch_overhead": [0, -1]}, "device 'b' .* has launch_overhead = -1.0"),
        ({"bandwidth": [[0, 0], [1, 0]]}, "link 'a' -> 'b' .* has bandwidth = 0.0; it must be at least 1e-50"),
        ({"delay": [[0, 0], [-1, 0]]}, "link 'b' -> 'a' .* has delay = -1.0"),
        ({"link_energy": [[0, np.nan], [0, 0]]}, "link 'a' -> 'b' .* has link_energy = nan"),
    ],
)
def test_what_a_network_refuses(changes, message):
    with pytest.raises(InputError, match=message):
        network(**changes)


@given(networks(power=True))
def test_data_that_stays_is_free(net):
    assert (np.diag(net.bandwidth) == np.inf).all()
    for links in (net.delay, net.seconds_per_byte, net.link_energy):
        assert (np.diag(links) == 0).all()
    away = ~np.eye(net.n_devices, dtype=bool)
    np.testing.assert_allclose(net.seconds_per_byte[away] * np.minimum(net.bandwidth[away], 1e300), np.isfinite(net.bandwidth[away]))


def test_scalars_repeat_and_the_diagonal_does_not_count():
    net = network(delay=5.0)
    assert net.bandwidth.tolist() == [[np.inf, 3], [3, np.inf]]
    assert net.delay.tolist() == [[0, 5], [5, 0]]
    assert net.kinds == ("device", "device")
    assert network(delay=[[7, 1], [2, 7]]) == network()


def test_index_names_what_there_is():
    assert network().index("b") == 1
    with pytest.raises(InputError, match="no device 'c'; it has a, b"):
        network().index("c")


@pytest.mark.parametrize(
    "changes",
    [
        {"names": ("a", "c")}, {"speed": [1, 3]}, {"bandwidth": 4.0}, {"delay": [[0, 1], [3, 0]]}, {"memory": 5.0}, {"power": 1.0},
        {"idle_power": 1.0}, {"link_energy": 1.0}, {"memory_bandwidth": 1.0}, {"launch_overhead": 1.0}, {"kinds": ("cpu", "gpu")},
        {"supports": (frozenset({"x"}), frozenset())},
    ],
)  # fmt: skip
def test_content_hash_sees_everything_but_the_name(changes):
    assert network(name="other").content_hash == network().content_hash
    assert network(name="other") != network()
    assert network(**changes).content_hash != network().content_hash
