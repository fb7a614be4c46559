"""The shape of a sweep: every key with its type, range and meaning, as pydantic models.

Lists come as tuples. From these come the checks of the text (`orchestration.definition.document`) and the JSON Schema
(`orchestration.definition.schema`). What names refer to, and what else only several parts together show, belongs to the modules that
read the sections.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Interval
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from envs.problem.errors import InputError
from envs.problem.problem import OBJECTIVES
from envs.problem.ranges import Positive
from orchestration.definition.values import (
    Costs,
    Evaluations,
    Name,
    Or,
    Section,
    Seeds,
    Time,
    Values,
    Vary,
    WholeCount,
    WholeCountOrNone,
    Word,
    Words,
    by_name,
    by_stem,
    listed,
    short,
    whole,
)
from orchestration.specs.report_keys import SHAPES
from orchestration.specs.sources import DOCUMENTS
from orchestration.specs.trial import KINDS

SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "grid": "GridSampler",
    "cma-es": "CmaEsSampler",
    "nsga-ii": "NSGAIISampler",
}
PRUNERS = {
    "none": "NopPruner",
    "median": "MedianPruner",
    "asha": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
}
SEARCH_OBJECTIVES = ("best", "curve", "seconds")
"""All minimised and averaged (geometric mean) over a configuration's problems and seeds: ``best``, the best objective reached
relative to the problem's lower bound; ``curve``, the mean of the best so far over the budget, likewise relative;
``seconds``, the learner's time, which depends on the machine."""


class Resources(Section):
    """What Ray reserves for a trial."""

    cpu: Annotated[float, Interval(ge=0, le=4096)] = 1.0
    """Processor cores."""
    gpu: Annotated[float, Interval(ge=0, le=1024)] = 0.0
    """Accelerators; shares above 1 must be whole."""
    custom: dict[Name, Annotated[float, Interval(gt=0, le=1_000_000)]] = Field(default_factory=dict)
    """Named resources of the cluster's nodes."""

    @model_validator(mode="after")
    def _whole_shares(self) -> Resources:
        for name, number in (("cpu", self.cpu), ("gpu", self.gpu)):
            if number > 1 and not number.is_integer():
                raise InputError(f"resources.{name} is {number:g}", "shares above 1 must be whole for Ray, so round it")
        return self


class ExecutionKeys(Section):
    """How trials run, not what they compute."""

    resources: Resources | None = None
    """What Ray reserves for a trial: {cpu: 2, gpu: 0.5, custom: {flex170: 1}}; does not change results."""
    propose: WholeCount | None = None
    """Placements asked of a method at once (64)."""
    checkpoint_every: Annotated[int, Interval(ge=1, le=1_000_000_000), BeforeValidator(whole)] | None = None
    """Evaluations between checkpoints (1000); does not change results."""
    priority: Annotated[int, Interval(ge=-1_000_000, le=1_000_000), BeforeValidator(whole)] | None = None
    """Higher is started, and measured for, before lower; does not change results."""


class Budget(Section):
    """When a trial ends: what comes first."""

    model_config = short({"type": "integer", "minimum": 0})
    evaluations: Evaluations | None = None
    """Evaluated placements."""
    evaluations_per_node: Annotated[float, Interval(gt=0, le=1e6)] | None = None
    """Evaluated placements for every operation of the trial's problems."""
    seconds: Time | None = None
    """Of a trial's wall time."""
    minutes: Time | None = None
    """The same in minutes."""
    hours: Time | None = None
    """The same in hours."""
    confirm: WholeCountOrNone = 0
    """Measurements of each of the best placements in the end, of which the least median wins."""

    @staticmethod
    def shorthand(value: Any) -> Any:
        """A number alone, ``1000``, means evaluated placements."""
        return {"evaluations": value} if isinstance(value, int | float) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _one_of_each(self) -> Budget:
        times = [k for k in ("seconds", "minutes", "hours") if getattr(self, k) is not None]
        if len(times) > 1:
            raise InputError(f"budget gives its time twice, by {' and '.join(times)}", "keep one")
        if self.evaluations is not None and self.evaluations_per_node is not None:
            raise InputError("budget gives evaluations and evaluations_per_node", "keep one")
        if self.evaluations is None and self.evaluations_per_node is None and not times:
            raise InputError("budget is empty", "give evaluations, seconds or both")
        return self

    @property
    def time(self) -> float | None:
        """Seconds of wall time; None without a limit."""
        for value, unit in ((self.seconds, 1.0), (self.minutes, 60.0), (self.hours, 3600.0)):
            if value is not None:
                return value * unit
        return None

    @property
    def counts(self) -> bool:
        """Whether it limits evaluations, not wall time alone."""
        return self.evaluations is not None or self.evaluations_per_node is not None


class EvaluatorModel(Section):
    """Who scores placements, with the options of that kind."""

    model_config = ConfigDict(extra="allow") | short("string")
    kind: Word
    """simulator, work-conserving, dataflow or openvino; or the name of a declared evaluator."""

    @staticmethod
    def shorthand(value: Any) -> Any:
        """``dataflow:cpu2`` is the kind and the host."""
        if not isinstance(value, str):
            return value
        kind, _, host = value.partition(":")
        return {"kind": kind, "host": host} if host else {"kind": kind}


class GraphEntry(Section):
    """A graph, or with seeds or vary a group of graphs. Says where it comes from by exactly one of its kinds."""

    model_config = ConfigDict(extra="allow") | short("string", "null")
    null_means: ClassVar[tuple[str, ...]] = ("model", "synthetic", "enas", "fusion")
    model: Word | None = None
    """A model known by name; its options stand beside."""
    file: Word | None = None
    """A .json, .onnx or .xml file."""
    synthetic: dict[str, Any] | None = None
    """GiPH's generator with its parameters."""
    enas: dict[str, Any] | None = None
    """Unrolled recurrent cells."""
    fusion: dict[str, Any] | None = None
    """Sensor fusion from a traffic trace, each with its own network."""
    sharded: Word | None = None
    """DOPPLER's graphs: chainmm, ffnn, llama-block, llama-layer."""
    problem: Word | None = None
    """A JSON file with graph, network and costs; not crossed with networks."""
    costs: Costs = None
    """Cost model of this graph."""
    seeds: Seeds | None = None
    """A graph for every seed: a group."""
    vary: Vary | None = None
    """A graph for every combination of these lists: a group."""

    @staticmethod
    def shorthand(value: Any) -> Any:
        """A word is a file by its ending, or else a model; nothing is the model of the label's name."""
        if isinstance(value, str):
            return {"file": value} if Path(value).suffix in (*DOCUMENTS, ".onnx", ".xml") else {"model": value}
        return {"model": None} if value is None else value


class NetworkEntry(Section):
    """A network, or with seeds or vary a group of networks. Says where it comes from by exactly one of its kinds."""

    model_config = ConfigDict(extra="allow") | short("string", "null")
    null_means: ClassVar[tuple[str, ...]] = ("named", "synthetic", "changing")
    named: Word | None = None
    """A network known by name."""
    file: Word | None = None
    """A .json file."""
    synthetic: dict[str, Any] | None = None
    """GiPH's generator with its parameters."""
    changing: dict[str, Any] | None = None
    """A network that loses devices and gets weaker ones."""
    costs: Costs = None
    """Cost model on this network."""
    seeds: Seeds | None = None
    """A network for every seed: a group."""
    vary: Vary | None = None
    """A network for every combination of these lists: a group."""

    @staticmethod
    def shorthand(value: Any) -> Any:
        """A word is a file by its ending, or else a name; nothing is the network of the label's name."""
        if isinstance(value, str):
            return {"file": value} if Path(value).suffix == ".json" else {"named": value}
        return {"named": None} if value is None else value


Objective: TypeAlias = Literal[tuple(OBJECTIVES)]  # type: ignore[valid-type]


class Problems(Section):
    """What is placed where."""

    graphs: Annotated[dict[Name, GraphEntry], BeforeValidator(by_stem), Or(names=True)]
    """Graphs by label, or a list of models and files."""
    networks: Annotated[dict[Name, NetworkEntry], BeforeValidator(by_stem), Or(names=True)] | None = None
    """Networks by label, or a list of names and files."""
    groups: dict[Name, Words] = Field(default_factory=dict)
    """Names for several graphs or several networks."""
    costs: Costs = None
    """roofline, linear, or a mapping with kind; by default roofline for models, linear for synthetic graphs."""
    objective: Objective | None = None
    """What is minimised."""


class MethodEntry(ExecutionKeys):
    """A row of the leaderboard: a method with settings."""

    model_config = ConfigDict(extra="allow")
    method: Word | None = None
    """Name of the method; by default the label."""
    config: dict[str, Any] | None = None
    """Settings whose names this mapping needs itself."""
    vary: Vary | None = None
    """A row for every combination of these lists of settings."""

    @staticmethod
    def shorthand(value: Any) -> Any:
        """Nothing is the method of the label's name with its defaults."""
        return {} if value is None else value


class Sample(Section):
    """Problems drawn without replacement."""

    model_config = short("integer")
    count: WholeCount
    """How many."""
    seed: Evaluations = 0
    """What they are drawn by."""

    @staticmethod
    def shorthand(value: Any) -> Any:
        """A number is the count."""
        return {"count": value} if isinstance(value, int | float) else value


class On(Section):
    """The problems of a stage."""

    model_config = short("string", "array")
    graphs: Words | None = None
    """Labels, groups and patterns such as layered/*."""
    networks: Words | None = None
    """Labels, groups and patterns."""
    costs: Costs = None
    """Cost model instead of the problems' own."""
    objective: Objective | None = None
    """Instead of the problems' own."""
    sample: Sample | None = None
    """So many of the problems, drawn without replacement."""

    @staticmethod
    def shorthand(value: Any) -> Any:
        """A word or a list is the graphs."""
        return {"graphs": value} if isinstance(value, str | tuple) else value


class Component(Section):
    """A sampler or pruner with the options of Optuna's class."""

    model_config = ConfigDict(extra="allow")
    name: str

    @staticmethod
    def shorthand(value: Any) -> Any:
        """A word is the name."""
        return {"name": value} if isinstance(value, str) else value


class SamplerModel(Component):
    """What proposes configurations in a search: a sampler of Optuna's, with its options."""

    model_config = short(words=SAMPLERS)
    name: Literal[tuple(SAMPLERS)]  # type: ignore[valid-type]
    """Which; Optuna's options stand beside."""


class PrunerModel(Component):
    """What ends hopeless trials early."""

    model_config = short(words=PRUNERS)
    name: Literal[tuple(PRUNERS)]  # type: ignore[valid-type]
    """Which; Optuna's options stand beside."""


_Float = Annotated[float, Interval(ge=-1e300, le=1e300)]
_Int = Annotated[int, Interval(ge=-(10**15), le=10**15)]


class ParameterModel(Section):
    """One searched setting: exactly one of float, int and choice."""

    model_config = short({"type": "array", "minItems": 1})
    floats: tuple[_Float, _Float] | None = Field(None, alias="float")
    """Lowest and highest."""
    ints: tuple[_Int, _Int] | None = Field(None, alias="int")
    """Lowest and highest, both included."""
    choice: Values | None = None
    """The values to choose from."""
    log: bool = False
    """Whether the scale is logarithmic."""
    step: Positive | None = None
    """Distance of the values that may be tried."""
    when: dict[str, Any] = Field(default_factory=dict)
    """Asked for only if these other parameters, all choices, have (one of) these values."""

    @staticmethod
    def shorthand(value: Any) -> Any:
        """A list is a choice."""
        return {"choice": value} if isinstance(value, tuple) else value


class Constraints(Section):
    """Limits on what a configuration costs."""

    seconds: Positive | None = None
    """Mean seconds of the method's own work in a trial."""
    invalid: Annotated[float, Interval(ge=0, le=1)] | None = None
    """Share of evaluated placements that cannot run."""


class Search(Section):
    """A search over settings."""

    space: dict[str, ParameterModel]
    """Settings (dotted where nested) and what may be tried."""
    configurations: WholeCount | None = None
    """Most configurations to try."""
    sampler: SamplerModel = SamplerModel(name="tpe")
    """tpe, random, grid, cma-es or nsga-ii; or {name: tpe, n_startup_trials: 20}."""
    pruner: PrunerModel = PrunerModel(name="none")
    """none, median, asha or hyperband; or a mapping with its options."""
    objectives: Annotated[tuple[Literal[SEARCH_OBJECTIVES], ...], BeforeValidator(listed), Field(min_length=1), Or()] = ("best",)  # type: ignore[valid-type]
    """best, curve, seconds."""
    seed: Evaluations = 0
    """Of the sampler."""
    reports: WholeCount = 10
    """Intermediate bests that a trial reports to the pruner."""
    storage: Word | None = None
    """URL of a database for the study."""
    known: Annotated[tuple[dict[str, Any], ...], BeforeValidator(listed), Or()] = ()
    """Configurations that are tried first: settings of the space, and their values."""
    constraints: Constraints = Constraints()
    """Limits that the winner keeps if any configuration does."""


class SharedKeys(ExecutionKeys):
    """What the sweep gives for all stages and a stage may change."""

    seeds: Seeds | None = None
    """[0, 1, 2], or a range with both ends, 0..24."""
    budget: Budget | None = None
    """Evaluated placements, or a mapping."""
    evaluator: EvaluatorModel | None = None
    """Who scores placements."""


Per = Literal["problem", "network", "graph", "all"]


class StageModel(SharedKeys):
    """One stage of a study."""

    kind: Literal[KINDS] | None = None  # type: ignore[valid-type]
    """By default the stage's name if it is one of these, else finetune with from and search without."""
    source: Word | None = Field(None, alias="from")
    """The stage whose checkpoint it starts from: the trial with the same method and seed that fits the problem."""
    config_from: Word | None = None
    """The search whose winner configures this stage."""
    on: On | None = None
    """Its problems; by default the graphs held out by from, the problems of from if that trained on each alone, or all."""
    hold_out: Words | None = None
    """each graph in turn, or a list of graphs and groups each in turn, is left out of training."""
    per: Per | None = None
    """One trial for every problem, network, graph, or for all together."""
    methods: Words | None = None
    """Labels and groups."""
    config: dict[str, Any] | None = None
    """Settings changed for this stage."""
    search: Search | None = None


class TableModel(Section):
    """A table in the shape of a paper's."""

    shape: Literal[SHAPES]  # type: ignore[valid-type]
    """What it shows; see the list of shapes in docs/sweeps.md."""
    title: Any = None
    """Above the table."""
    stages: Words | None = None
    """Whose trials it takes; all by default."""
    methods: Words | None = None
    """Its rows or columns; all by default."""
    baseline: Word | None = None
    """The method that others are compared with; the report's by default."""
    base: Word | None = None
    """The method that ablations change."""
    columns: dict[str, Words] | None = None
    """Names of columns, and the stages that each gathers."""
    bins: WholeCount | None = None
    """How many, of depths."""
    failed: Positive | None = None
    """Seconds that a placement costs which fails (20), of hours."""
    paper: dict[str, Any] | None = None
    """The paper's numbers by row."""
    note: Any = None
    """Below the table."""


class Report(Section):
    """Tables beside the leaderboard."""

    baseline: Word | None = None
    """A method's label."""
    tables: Annotated[tuple[TableModel, ...], BeforeValidator(listed), Or()] = ()


class SweepModel(SharedKeys):
    """A placewright sweep: a whole study."""

    sweep: Name
    """Its name; runs are kept and found under it."""
    description: Any = None
    """Words for people."""
    problems: Problems
    methods: Annotated[dict[Name, MethodEntry], BeforeValidator(by_name), Or(names=True)]
    """Rows of the leaderboard: a mapping from labels to settings, or a list of names."""
    ablations: Annotated[tuple[dict[str, Any], ...], BeforeValidator(listed), Or()] = ()
    """Further rows: named changes of a base."""
    evaluators: dict[Name, EvaluatorModel] = Field(default_factory=dict)
    """Declared evaluators, to be named by stages."""
    stages: dict[Name, StageModel] | None = None
    """A DAG of stages; without it the sweep is one stage."""
    on: On | None = None
    """As in a stage, for a sweep without stages."""
    per: Per | None = None
    """As in a stage, for a sweep without stages."""
    search: Search | None = None
    """As in a stage, for a sweep without stages."""
    report: Report | None = None
