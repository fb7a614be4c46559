"""Evaluators from their description, and the wrappers that share their face. Queues, hosts and Ray belong to the service."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envs.problem.errors import InputError, nearest
from envs.problem.measurement import Evaluator, Measurements, Request
from orchestration.rewards.wrappers import Failing, Noisy
from orchestration.specs.trial import EvaluatorSpec

SIMULATOR_OPTIONS = ("noise", "measurement_noise", "relocation", "fail", "local", "host")
"""Options of the kind ``simulator``: noise of every task, noise of the whole measurement, runs a second that share
the cost of moving away from the placement in force (or ``{frequency: , static: }``), share of measurements that fail as
infrastructure does (to try recovery), whether trials simulate inside their own worker, the named pool to ask."""
DISCIPLINE_OPTIONS = ("strategy", "channels", "sharing", "synchronous")
"""`envs.simulators.work_conserving.discipline.Discipline`'s."""
WORK_CONSERVING_OPTIONS = (*SIMULATOR_OPTIONS, *DISCIPLINE_OPTIONS, "processors", "samples", "inputs_everywhere")
"""Options of the kind ``work-conserving``, DOPPLER's simulator: `envs.simulators.work_conserving.evaluator.WorkConservingSimulator`'s."""
HOST_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "dataflow": (
        *DISCIPLINE_OPTIONS, "devices", "measuring", "emulate_links", "check_results", "input_seed", "models", "prepare_limit", "cache",
        "host",
    ),
    "openvino": (
        "devices", "mode", "models", "measuring", "tolerance", "keep_compiled", "compile_limit", "memory_limit", "prepare_limit", "cache",
        "host", "choice", "preference",
    ),
}  # fmt: skip
"""Options of the kinds that measure for real on the machine that they run on: `envs.hosts.engine.host.Engine`'s and
`envs.hosts.openvino.host.OpenVinoHost`'s; ``cache: false`` measures a placement again that was measured before.
With ``choice`` (HETERO or AUTO) and ``preference`` OpenVINO chooses the devices itself, whatever placement it is asked about."""
TRACING_HOSTS = ("dataflow",)
"""Kinds that measure for real and tell when each operation and transfer ran."""
SIMULATORS: Mapping[str, tuple[str, ...]] = {"simulator": SIMULATOR_OPTIONS, "work-conserving": WORK_CONSERVING_OPTIONS}
"""Options of the kinds that simulate, which any process can."""
OPTIONS: Mapping[str, tuple[str, ...]] = {**SIMULATORS, **HOST_OPTIONS}
"""Options of every kind."""


class InfrastructureError(RuntimeError):
    """Nothing is known about the placement: a host, a worker or a connection failed. Retried, never a reward."""


class EvaluationError(RuntimeError):
    """An evaluator raised over a request; the message is its traceback, from the process in which it ran."""


def build_evaluator(spec: EvaluatorSpec) -> Evaluator:
    """The evaluator that measures in this process.

    Raises:
        InputError: for an unknown kind or option, naming the nearest known one, or a value out of range.
    """
    if spec.kind not in OPTIONS:
        raise InputError(f"this process cannot measure {spec.key!r}; ask a host that serves that key")
    unknown = [key for key in spec.options if key not in OPTIONS[spec.kind]]
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r} of evaluator {spec.kind!r}{nearest(unknown[0], OPTIONS[spec.kind])}")
    if spec.kind in SIMULATORS:
        return _simulator(spec)
    return _openvino(spec.options) if spec.kind == "openvino" else _dataflow(spec.options)


def close_evaluators(evaluators: Iterable[Evaluator]) -> None:
    """End the processes of those that have some."""
    for evaluator in evaluators:
        if (close := getattr(evaluator, "close", None)) is not None:
            close()


def _dataflow(options: Mapping[str, Any]) -> Evaluator:
    from envs.hosts.engine.devices import parse_devices
    from envs.hosts.engine.host import Engine
    from envs.hosts.measuring import Measuring
    from envs.simulators.work_conserving.discipline import Discipline
    from methods.contract.config import make_config

    settings = {key: value for key, value in options.items() if key not in ("cache", "host", "measuring", *DISCIPLINE_OPTIONS)}
    devices = settings.get("devices")
    if not isinstance(devices, list | tuple) or not all(isinstance(d, str) for d in devices):
        raise InputError(f"evaluator 'dataflow' has devices {devices!r}; say what stands for the network's, as devices: [cpu:0, cpu:1]")
    if "host" not in options:  # a named host's devices are its own affair
        parse_devices(tuple(devices))
    discipline = Discipline(**{key: options[key] for key in DISCIPLINE_OPTIONS if key in options})
    return Engine(**settings, discipline=discipline, measuring=make_config(Measuring, options.get("measuring", {}), "measuring."))


def _openvino(options: Mapping[str, Any]) -> Evaluator:
    from envs.hosts.measuring import Measuring
    from envs.hosts.openvino.host import HSDAG_PROTOCOL, OpenVinoHost
    from methods.contract.config import make_config

    settings = {key: value for key, value in options.items() if key not in ("cache", "host", "measuring", "choice", "preference")}
    if "devices" not in settings:
        raise InputError("evaluator 'openvino' lacks devices; say what stands for the network's, as devices: {cpu: CPU, gpu: GPU.1}")
    measuring = {**dataclasses.asdict(HSDAG_PROTOCOL), **options.get("measuring", {})}
    host = OpenVinoHost(**settings, measuring=make_config(Measuring, measuring, "measuring."))
    if "choice" not in options:
        return host
    from envs.hosts.openvino.choice import ToolkitChoice

    return ToolkitChoice(host, options["choice"], options.get("preference", list(host.devices)))


def _work_conserving(options: Mapping[str, Any], noise: float) -> Evaluator:
    from envs.simulators.work_conserving.discipline import Discipline
    from envs.simulators.work_conserving.evaluator import WorkConservingSimulator

    discipline = Discipline(**{key: options[key] for key in (*DISCIPLINE_OPTIONS, "processors") if key in options})
    own = {key: options[key] for key in ("samples", "inputs_everywhere") if key in options}
    return WorkConservingSimulator(discipline, noise, **own)


def _simulator(spec: EvaluatorSpec) -> Evaluator:
    from envs.simulators.fifo.evaluator import Simulator

    noise = float(spec.options.get("noise", 0.0))
    evaluator: Evaluator = Simulator(noise=noise) if spec.kind == "simulator" else _work_conserving(spec.options, noise)
    if spec.options.get("measurement_noise"):
        evaluator = Noisy(evaluator, float(spec.options["measurement_noise"]))
    relocation = spec.options.get("relocation")
    if relocation is not None:
        from envs.simulators.relocation import Relocating

        settings = dict(relocation) if isinstance(relocation, Mapping) else {"frequency": relocation}
        unknown = [key for key in settings if key not in ("frequency", "static")]
        if unknown or not isinstance(settings.get("frequency"), int | float) or isinstance(settings["frequency"], bool):
            raise InputError(f"relocation is {relocation!r}; write relocation: 10 (runs a second) or {{frequency: 10, static: true}}")
        evaluator = Relocating(evaluator, float(settings["frequency"]), bool(settings.get("static", False)))
    if spec.options.get("fail"):
        evaluator = Failing(evaluator, float(spec.options["fail"]))
    return evaluator


def lease_seconds(evaluator: Evaluator) -> float | None:
    """How long real hardware may take over one placement: twice all limits of its own, and a minute for what has none.

    None if it has no limits.
    """
    host = getattr(evaluator, "host", evaluator)
    measuring = getattr(host, "measuring", None)
    if measuring is None:
        return None
    return 60.0 + 2.0 * (measuring.time_limit + sum(getattr(host, name, 0.0) for name in ("prepare_limit", "compile_limit")))


def remembered(spec: EvaluatorSpec) -> bool:
    """Whether a real measurement stands for later ones: it is as good for one seed as for another, unless the sweep says otherwise."""
    return spec.kind in HOST_OPTIONS and bool(spec.options.get("cache", True))


def machine_of(kind: str) -> str:
    """The fingerprint of this machine for a kind that measures for real."""
    if kind == "openvino":
        from envs.hosts.openvino.host import fingerprint
    else:
        from envs.hosts.engine.host import fingerprint
    return fingerprint()


def in_worker(spec: EvaluatorSpec) -> bool:
    """Whether a trial measures inside its own worker instead of asking the service."""
    return spec.kind in SIMULATORS and bool(spec.options.get("local", False))


def evaluate_all(evaluator: Evaluator, requests: Sequence[Request]) -> list[Measurements]:
    """Answers in order; an evaluator that can keep several requests in flight (``evaluate_many``) gets them all at once."""
    many = getattr(evaluator, "evaluate_many", None)
    if many is not None:
        return many(requests)
    return [evaluator.evaluate(r.problem, r.placements, r.seed, first=r.first, trace=r.trace) for r in requests]
