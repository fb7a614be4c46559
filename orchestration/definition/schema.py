"""The JSON Schema of a sweep, for editors: the models, with the settings of every method and the options of every evaluator put in.

It says of the text what can be said without looking anything up; `placewright validate` says the rest.
"""

from __future__ import annotations

from typing import Any

from methods.contract import registry
from methods.contract.config import adapter
from orchestration.definition.models import SweepModel
from orchestration.rewards.kinds import EVALUATORS
from orchestration.specs.sources import GENERATED, generator

_INCLUDE = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "description": "Files whose keys are added."}
Schema = dict[str, Any]


def sweep_schema() -> Schema:
    """The schema (draft 2020-12) of a sweep as it is written; loads every method."""
    schema = SweepModel.model_json_schema()
    definitions = schema["$defs"]
    _put_methods(schema, definitions)
    _put_evaluators(definitions)
    for what, model in (("graph", "GraphEntry"), ("network", "NetworkEntry")):
        for kind in GENERATED[what]:
            known = _dataclass(definitions, f"{what}.{kind}", generator(what, kind)[0])
            if kind == "fusion":
                definitions[known]["properties"]["trace"] = {"type": "string", "description": "A recorded trace of traffic (.npz)."}
            _whole(definitions[model])["properties"][kind] = {"anyOf": [_ref(known), {"type": "null"}]}
    _allow_include(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://placewright/sweep.schema.json", **schema}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _whole(schema: Schema) -> Schema:
    """The mapping among the forms in which a model may be written."""
    found: Schema = next((s for s in schema.get("anyOf", ()) if "properties" in s), schema)
    return found


def _dataclass(definitions: Schema, name: str, cls: type) -> str:
    """Adds a dataclass and those inside it under names of their own; the name of the whole."""
    made = adapter(cls).json_schema(ref_template=f"#/$defs/{name}.{{model}}")
    for inner, schema in made.pop("$defs", {}).items():
        definitions[f"{name}.{inner}"] = schema
    definitions[name] = made
    return name


def _put_methods(schema: Schema, definitions: Schema) -> None:
    """A row takes the settings of its method, which is named by ``method`` or by the label."""
    row = definitions.pop("MethodEntry")
    for name in registry.names():
        settings = _dataclass(definitions, f"settings.{name}", registry.method_class(name).Config)
        properties = {**_dotted(definitions, definitions[settings]), **row["properties"]}
        definitions[f"method.{name}"] = {
            "type": ["object", "null"], "properties": {**properties, "config": _ref(settings)}, "additionalProperties": False,
        }  # fmt: skip
    definitions["row"] = {
        "type": "object",
        "required": ["method"],
        "properties": {"method": {"enum": registry.names()}},
        "allOf": [
            {"if": {"properties": {"method": {"const": name}}, "required": ["method"]}, "then": _ref(f"method.{name}")}
            for name in registry.names()
        ],
    }
    named = {"type": "object", "required": ["method"]}
    rows, names = schema["properties"]["methods"]["anyOf"]
    rows["patternProperties"] = dict.fromkeys(rows["patternProperties"], _ref("row"))
    rows["properties"] = {name: {"if": named, "then": _ref("row"), "else": _ref(f"method.{name}")} for name in registry.names()}
    names["items"] = {"enum": registry.names()}


def _dotted(definitions: Schema, settings: Schema, prefix: str = "") -> Schema:
    """The properties of settings, those of nested ones by dotted names, too."""
    found: Schema = {}
    for name, schema in settings.get("properties", {}).items():
        found[prefix + name] = schema
        target = definitions.get(str(schema.get("$ref", "")).removeprefix("#/$defs/"))
        if target is not None:
            found |= _dotted(definitions, target, f"{prefix}{name}.")
    return found


def _put_evaluators(definitions: Schema) -> None:
    mapping = _whole(definitions["EvaluatorModel"])
    mapping["allOf"] = [
        {
            "if": {"properties": {"kind": {"const": kind.name}}, "required": ["kind"]},
            "then": {"properties": dict.fromkeys(("kind", *kind.options), True), "additionalProperties": False},
        }
        for kind in EVALUATORS.values()
    ]


def _allow_include(schema: Any) -> None:
    """Any mapping may take keys from fragments, among them those that it must have."""
    if isinstance(schema, list):
        for part in schema:
            _allow_include(part)
    elif isinstance(schema, dict):
        for key, part in schema.items():
            if key not in ("if", "default", "enum", "const"):
                _allow_include(part)
        if "patternProperties" in schema:  # the names of a mapping whose values are alike; ``include`` is none of them
            ((pattern, values),) = schema.pop("patternProperties").items()
            schema["propertyNames"] = {**schema.get("propertyNames", {}), "pattern": pattern}
            schema |= {"properties": schema.get("properties", {}), "additionalProperties": values}
        if schema.get("additionalProperties") is False or (schema.get("type") == "object" and "properties" in schema):
            schema["properties"] = {**schema["properties"], "include": _INCLUDE}
            required = schema.pop("required", None)
            if required:
                schema["anyOf"] = [{"required": required}, {"required": ["include"]}]
