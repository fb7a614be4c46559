import numpy as np
import pytest

from envs.networks.named import named_network, names
from envs.problem.errors import InputError
from envs.problem.network import DeviceNetwork


@pytest.mark.parametrize("name", names())
def test_every_named_network_is_complete_and_always_the_same(name):
    network = named_network(name)
    assert isinstance(network, DeviceNetwork)
    assert network.name == name
    assert network.content_hash == named_network(name).content_hash
    assert np.isfinite(network.memory_bandwidth).all() and np.isfinite(network.memory).all()
    assert (network.power > network.idle_power).all() and (network.launch_overhead > 0).all()
    off = ~np.eye(network.n_devices, dtype=bool)
    assert np.isfinite(network.bandwidth[off]).all() and (network.delay[off] > 0).all()
    assert np.array_equal(network.bandwidth, network.bandwidth.T)


def test_the_two_device_machine_is_part_of_the_four_device_one():
    four, two = named_network("cpu-gpu-4"), named_network("cpu-gpu-2")
    keep = [four.index(name) for name in two.names]
    assert np.array_equal(two.speed, four.speed[keep])
    assert np.array_equal(two.delay, four.delay[np.ix_(keep, keep)])
    assert four.n_devices == 4


def test_an_unknown_network_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'cpu-gpu-4'"):
        named_network("cpu-gpu4")
    with pytest.raises(InputError, match="cpu-gpu-2"):
        named_network("laptop")
