"""Whether there is a machine for a trial's resources, and how many trials have room at a time: arithmetic over the nodes of a Ray
cluster. Which trial runs where is Ray's own choice and does not belong here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError

from envs.problem.errors import InputError
from orchestration.specs.canonical import FrozenDict
from orchestration.specs.trial import Trial

Node = Mapping[str, float]
"""Amount of each resource that a node has in all, by Ray's names."""
GROUP_LABEL = "ray.io/node-group"
"""Nodes that KubeRay or Ray's cluster launcher started carry it; such a cluster may grow."""
LAUNCHED = Path("~/ray_bootstrap_config.yaml").expanduser()
"""Where Ray's cluster launcher leaves its configuration on the head."""
UNKNOWN = ", and whether it ever will cannot be known here"
_ASIDE = ("memory", "object_store_memory", "node:")
_SLACK = 1e-9


def alive(nodes: Iterable[Mapping[str, Any]]) -> list[Node]:
    """What `ray.nodes` tells of nodes that live."""
    return [n["Resources"] for n in nodes if n["Alive"]]


def may_grow(nodes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether something may add machines."""
    return any(GROUP_LABEL in (n.get("Labels") or {}) for n in nodes)


def startable(nodes: Iterable[Mapping[str, Any]], config: Path) -> list[Node] | None:
    """The kinds of machines that Ray's cluster launcher may start, each with its resources; None if nobody here can tell.

    The launcher leaves its configuration on the head, where drivers run that were submitted. KubeRay's stays with Kubernetes. A kind whose
    resources it leaves to the machine itself makes all of it unknown.

    Args:
        nodes: what `ray.nodes` tells; their groups say whether the file is this cluster's.
        config: the file, `LAUNCHED`.
    """
    groups = {(n.get("Labels") or {}).get(GROUP_LABEL) for n in nodes if n["Alive"]} - {None}
    try:
        kinds = YAML(typ="safe", pure=True).load(config.read_text(encoding="utf-8"))["available_node_types"]
        may = [kind.get("resources") or {} for kind in kinds.values() if kind.get("max_workers", 1) != 0]
        if groups <= set(kinds) and all("CPU" in resources for resources in may):
            return [{str(k): float(v) for k, v in resources.items()} for resources in may]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, YAMLError):
        pass  # no file, or none of the launcher's
    return None


def needs(resources: Mapping[str, Any]) -> dict[str, float]:
    """A trial's resources by Ray's names."""
    asked = {"CPU": resources.get("num_cpus", 1), "GPU": resources.get("num_gpus", 0), **resources.get("custom", {})}
    return {name: float(amount) for name, amount in asked.items() if amount}


def room_for(need: Mapping[str, float], node: Node) -> bool:
    """Whether a node that runs nothing else has room for one such trial."""
    return all(node.get(name, 0.0) + _SLACK >= amount for name, amount in need.items())


def running(handed: Mapping[FrozenDict, int], nodes: Sequence[Node]) -> int:
    """How many of the trials that were handed over have room at a time, if nobody else uses the machines."""
    free, count = [dict(n) for n in nodes], 0
    for resources, left in handed.items():
        need = needs(resources)
        for node in free:
            if not left:
                break
            fit = min([left, *(int((node.get(name, 0.0) + _SLACK) / amount) for name, amount in need.items())])
            for name, amount in need.items():
                node[name] = node.get(name, 0.0) - fit * amount
            left, count = left - fit, count + fit  # noqa: PLW2901
    return count


def homeless(handed: Mapping[FrozenDict, int], nodes: Sequence[Node]) -> str:
    """Of trials that no machine has room for: how many wait for what; nothing if there are none."""
    waiting = [(n, needs(r)) for r, n in handed.items() if n and not any(room_for(needs(r), node) for node in nodes)]
    return ", ".join(f"{n} waiting for {_shown(need)}" for n, need in waiting)


def check(trials: Iterable[Trial], nodes: Sequence[Node], grows: bool, kinds: Sequence[Node] | None = None) -> list[str]:
    """Notes about trials that no machine has room for now, if the cluster may grow.

    Args:
        kinds: of machines that it may start (`startable`); None if that is not known.

    Raises:
        InputError: if there will never be such a machine: they would wait for ever.
    """
    notes = []
    for trial in {t.resources: t for t in trials}.values():
        need = needs(trial.resources)
        if any(room_for(need, node) for node in nodes):
            continue
        short = {k: v for k, v in need.items() if all(n.get(k, 0.0) + _SLACK < v for n in nodes)}
        asked = _shown(short) if short else f"{_shown(need)} at once"
        text = f"method {trial.label!r} of stage {trial.stage!r} asks for {asked}, which no machine has (there are {_machines(nodes)})"
        if not grows:
            raise InputError(f"{text}; change its resources, or start such a machine with `ray start --resources`")
        if kinds is not None and not any(room_for(need, kind) for kind in kinds):
            raise InputError(
                f"{text}, nor has any that the cluster may start ({_machines(kinds)}); change its resources, or the kinds in the cluster's "
                "configuration"
            )
        notes.append(f"{text}; its trials wait until the cluster has grown one{'' if kinds is not None else UNKNOWN}")
    return notes


def hosted(keys: Iterable[str], unserved: Callable[[str], str | None], grows: bool, kinds: Sequence[Node] | None) -> list[str]:
    """As `check`, of keys that no machine serves now, about which ``unserved`` gives a sentence."""
    notes = []
    for key in keys:
        missing = unserved(key)
        if missing and (not grows or (kinds is not None and not any(kind.get(key) for kind in kinds))):
            raise InputError(f"{missing}; start a node with that resource, or name another host")
        if missing:
            notes.append(f"{missing}; its trials wait until the cluster has grown one{'' if kinds is not None else UNKNOWN}")
    return notes


def _machines(nodes: Sequence[Node]) -> str:
    kinds = Counter(_shown({k: v for k, v in n.items() if not k.startswith(_ASIDE)}) for n in nodes)
    return "; ".join(f"{n} x {kind or 'nothing'}" for kind, n in kinds.items()) or "none"


def _shown(amounts: Mapping[str, float]) -> str:
    """``1 GPU and 2 flex170``."""
    return " and ".join(f"{amount:g} {name}" for name, amount in sorted(amounts.items()))
