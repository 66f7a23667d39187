"""The JSON schema of a run record, made from the types of its parts.

    python -m rnn_scaling.records.json_schema > docs/run.schema.json

The schema has types, ranges and required fields. `record.from_json` also checks
lengths, sums and totals, which a schema cannot express. Fields that it does not name
are allowed, because newer versions may add some.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from rnn_scaling.records import record
from rnn_scaling.records.decoding import Name, Part, Range, require_not_null
from rnn_scaling.system.files.input_files import format_json

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN_TYPES = {
    str: {"type": "string"},
    Name: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
}
Schema = dict[str, Any]


def build() -> Schema:
    """Return the schema of a record's file."""
    definitions: dict[str, Schema] = {}
    properties: dict[str, Schema] = {
        "schema": {"const": record.SCHEMA},
        "status": {"enum": list(record.STATUSES)},
        "config": {"type": "object", "description": "every option by its name"},
    }
    for name, kind in record.TOP_FIELDS.items():
        properties[name] = _describe(kind, definitions)
    for name, kind in record.PARTS.items():
        # A part that the run did not reach is {}.
        part_schema = _describe(kind, definitions)
        properties[name] = {
            "anyOf": [{"type": "object", "maxProperties": 0}, part_schema]
        }
    return {
        "$schema": _DIALECT,
        "title": "Record of a run",
        "type": "object",
        "required": ["schema", "status", "error", "config"],
        "properties": properties,
        "$defs": definitions,
    }


def _describe(annotation: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a value.

    Args:
      annotation: The type of the field.
      definitions: Receives the schema of each part, by its name.
    """
    kind = require_not_null(annotation)
    if kind is not annotation:
        return {"anyOf": [_describe(kind, definitions), {"type": "null"}]}
    if kind in _PLAIN_TYPES:
        return dict(_PLAIN_TYPES[kind])
    arguments = typing.get_args(kind)
    if arguments and isinstance(arguments[1], Range):
        number_range = arguments[1]
        return {
            "type": "number",
            "minimum": number_range.low,
            "maximum": number_range.high,
        }
    origin = typing.get_origin(kind)
    if origin is tuple:
        return {"type": "array", "items": _describe(arguments[0], definitions)}
    if origin is not None and issubclass(origin, Mapping):
        values = _describe(arguments[1], definitions)
        return {"type": "object", "additionalProperties": values}
    if isinstance(kind, type) and issubclass(kind, Part):
        _define(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    return {}


def _define(kind: Any, definitions: dict[str, Schema]) -> None:
    """Add the schema of a part."""
    if kind.__name__ in definitions:
        return
    definition: Schema = {"type": "object", "properties": {}}
    definitions[kind.__name__] = definition
    required_names = []
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        if field.name in ("extra_fields", "missing"):
            continue
        key = field.metadata.get("key", field.name)
        definition["properties"][key] = _describe(hints[field.name], definitions)
        has_default = field.default is not field.default_factory  # both are MISSING
        if not has_default and "older" not in field.metadata:
            required_names.append(key)
    if required_names:
        definition["required"] = required_names


def format_schema() -> str:
    """Return the schema as a file."""
    return format_json(build())


if __name__ == "__main__":
    print(format_schema(), end="")
