"""Read frozen dataclasses from JSON objects, and write them.

A part is a dataclass derived from `Part`. The annotations of its fields are the rules
of a file: numbers in a `Range`, texts, tuples, mappings and other parts. Every fault is
reported with its path. Metadata of a field:

  key: The name of the field in the file, if it differs.
  older: The name of the field in older files. They are read with it, but every file is
    written with the newer name.
  former: True for a field that only older versions wrote. It is left out if it is None.

A part may have a field `missing`. It gets the names of the fields that the file lacks,
and `encode` leaves these out again, so that reading and writing changes no file. Such a
part can have neither `key` nor `older`, because `missing` contains only the names in
the file.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union

# Limits of seconds and counts; beyond them, sums and ratios overflow.
MIN_NUMBER = 1e-12
MAX_NUMBER = 1e18
MAX_SINGLE = 3.5e38  # above every float32
_MAX_QUOTE_LENGTH = 40  # characters of a value in a fault

Faults = list[str]
# Value, its path, faults so far -> the value as a part stores it.
Decode = Callable[[Any, str, Faults], Any]
P = TypeVar("P", bound="Part")


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, whole or not."""

    low: float
    high: float
    words: str  # the rule in a fault: "expected ..."


Number = Annotated[float, Range(-MAX_NUMBER, MAX_NUMBER, "a number")]
Single = Annotated[float, Range(-MAX_SINGLE, MAX_SINGLE, "a number")]
Magnitude = Annotated[float, Range(0, MAX_SINGLE, "a number of at least 0")]
Loss = Single  # may be as large as float32 allows, because runs diverge
Count = Annotated[int, Range(0, MAX_NUMBER, "a number")]
Seconds = Annotated[float, Range(0, MAX_NUMBER, "seconds")]
Joules = Annotated[float, Range(0, MAX_NUMBER, "joules")]
PositiveNumber = Annotated[float, Range(MIN_NUMBER, MAX_NUMBER, "a number above 0")]
Fraction = Annotated[float, Range(0, 0.99, "a share below 1")]
Name = Annotated[str, "printable"]
PositiveCount = Annotated[int, Range(MIN_NUMBER, MAX_NUMBER, "a number above 0")]

_SCALARS = {str: "text", Name: "a name", bool: "true or false", int: "a whole number"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An object in a file."""

    # Fields that a newer version wrote; they are written again.
    extra_fields: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sparse(Part):
    """A part whose fields are left out of the file if they are None.

    Most of its fields apply to only one kind of device or run.
    """


def decode(kind: Any, value: Any, path: str, faults: Faults) -> Any:
    """Return a part, or a value of any other type, from parsed JSON.

    Args:
      kind: An annotation.
      value: The parsed JSON.
      path: The place of the value in the file, for faults.
      faults: Each fault is appended to it.

    Returns:
      The value; None for a part with faults.
    """
    return _make_decoder(kind)(value, path, faults)


def build(kind: type[P], fields: Mapping[str, Any], path: str = "") -> P:
    """Return a part from fields that this program made.

    Raises:
      ValueError: If the fields have faults.
    """
    faults: Faults = []
    part: P | None = decode(kind, fields, path or kind.__name__.lower(), faults)
    if part is None:
        raise ValueError(". ".join(faults))
    return part


def encode(value: Any) -> Any:
    """Return a part, or a value inside one, as JSON; NaN and infinities become null."""
    if isinstance(value, Part):
        kind: Any = type(value)
        missing_fields = getattr(value, "missing", ())
        fields = {}
        for field in _list_file_fields(kind):
            item = getattr(value, field.name)
            is_optional = isinstance(value, Sparse) or field.metadata.get("former")
            if field.name not in missing_fields and not (is_optional and item is None):
                fields[field.metadata.get("key", field.name)] = encode(item)
        return {**fields, **encode(value.extra_fields or {})}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def quote(value: Any) -> str:
    """Return a value as a fault quotes it."""
    if value is None:
        return "missing"
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers with thousands of digits
        text = "a number with thousands of digits"
    return (
        text
        if len(text) <= _MAX_QUOTE_LENGTH
        else text[: _MAX_QUOTE_LENGTH - 3] + "..."
    )


def require_not_null(annotation: Any) -> Any:
    """Return the type of a value that is not null."""
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    arguments = typing.get_args(annotation)
    (kind,) = [argument for argument in arguments if argument is not type(None)]
    return kind


def _are_numbers(values: Sequence[Any], low: float, high: float) -> bool:
    """Return whether all values are numbers in a range.

    Only functions in C look at each value, because a folder may contain millions.
    """
    if not {*map(type, values)} <= {int, float}:
        return False
    if not values:
        return True
    is_in_range = min(values) >= low and max(values) <= high
    return is_in_range and not any(map(math.isnan, values))


@functools.cache
def _list_file_fields(kind: Any) -> list[dataclasses.Field]:
    """Return the fields that a file contains."""
    fields = dataclasses.fields(kind)
    return [field for field in fields if field.name not in ("extra_fields", "missing")]


@functools.cache
def _make_decoder(annotation: Any, or_null: str = "") -> Decode:
    """Return the function that decodes a value of a type.

    A number in a range is also annotated, so its range is looked for before its type.

    Args:
      annotation: The type.
      or_null: Appended to the rule in faults if the value may be null.
    """
    kind = require_not_null(annotation)
    if kind is not annotation:
        decode_value = _make_decoder(kind, " or null")
        return lambda value, path, faults: (
            None if value is None else decode_value(value, path, faults)
        )
    if kind is Any:
        return lambda value, path, faults: value
    rule = _describe_type(kind) + or_null
    if number_range := _find_number_range(kind):
        return _make_number_decoder(number_range, rule)
    if kind in _SCALARS:
        return _make_scalar_decoder(kind, rule)
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is tuple:
        return _make_tuple_decoder(arguments[0], rule)
    if origin is not None:
        return _make_mapping_decoder(_make_decoder(arguments[1]), rule)
    return _make_part_decoder(kind, rule)


def _find_number_range(annotation: Any) -> Range | None:
    """Return the range of a type of numbers, or None for other types."""
    if typing.get_origin(annotation) is not Annotated:
        return None
    rule = typing.get_args(annotation)[1]
    return rule if isinstance(rule, Range) else None


def _describe_type(annotation: Any) -> str:
    """Describe the values of a type, as the end of "expected ..."."""
    if number_range := _find_number_range(annotation):
        return number_range.words
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    kind = require_not_null(annotation)
    if kind is not annotation:
        return f"{_describe_type(kind)} or null"
    return "a list" if typing.get_origin(annotation) is tuple else "an object"


def _add_fault(faults: Faults, path: str, value: Any, rule: str) -> None:
    faults.append(f"{path} is {quote(value)}; expected {rule}")


def _make_scalar_decoder(kind: Any, rule: str) -> Decode:
    value_type = str if kind is Name else kind

    def decode_scalar(value: Any, path: str, faults: Faults) -> Any:
        is_valid = type(value) is value_type
        if not is_valid or (kind is Name and not value.isprintable()):
            _add_fault(faults, path, value, rule)
        return value

    return decode_scalar


def _make_number_decoder(number_range: Range, rule: str) -> Decode:
    low = number_range.low
    high = number_range.high

    def decode_number(value: Any, path: str, faults: Faults) -> Any:
        if type(value) not in (int, float) or not low <= value <= high:
            _add_fault(faults, path, value, rule)
        return value

    return decode_number


def _make_tuple_decoder(item_type: Any, rule: str) -> Decode:
    decode_item = _make_decoder(item_type)
    number_range = _find_number_range(require_not_null(item_type))
    may_be_null = require_not_null(item_type) is not item_type

    def decode_tuple(value: Any, path: str, faults: Faults) -> Any:
        if type(value) is not list:
            _add_fault(faults, path, value, rule)
            return None
        # Long lists of numbers are checked at once. Only a list with a fault is decoded
        # item by item, to find it.
        if number_range:
            numbers = value
            if may_be_null:
                numbers = [item for item in value if item is not None]
            if _are_numbers(numbers, number_range.low, number_range.high):
                return tuple(value)
        item_faults: Faults = []
        items = [
            decode_item(item, f"{path}[{i}]", item_faults)
            for i, item in enumerate(value)
        ]
        if number_range and len(item_faults) > 1:
            num_others = len(item_faults) - 1
            item_faults = [f"{item_faults[0]} (and {num_others} more in this list)"]
        faults += item_faults
        return tuple(items)

    return decode_tuple


def _make_mapping_decoder(decode_item: Decode, rule: str) -> Decode:
    def decode_mapping(value: Any, path: str, faults: Faults) -> Any:
        if type(value) is not dict:
            _add_fault(faults, path, value, rule)
            return None
        for key, item in value.items():
            decode_item(item, f"{path}.{key}", faults)
        return value

    return decode_mapping


@dataclasses.dataclass(frozen=True)
class _Field:
    """The rule that decodes one field of a part.

    Attributes:
      name: The field's name in the part.
      key: The field's name in the file.
      older_key: The field's name in older files, or `key`.
      decode: Decodes its value.
      rule: The rule of a required field, in words; "" for an optional one.
    """

    name: str
    key: str
    older_key: str
    decode: Decode
    rule: str


def _make_part_decoder(kind: Any, rule: str) -> Decode:
    """Return the function that decodes a JSON object as a part of this class."""
    hints = typing.get_type_hints(kind, include_extras=True)
    plan = []  # decided once per type, because a folder has many records
    keys = set()
    for field in _list_file_fields(kind):
        hint = hints[field.name]
        key = field.metadata.get("key", field.name)
        older_key = field.metadata.get("older", key)
        is_required = field.default is field.default_factory  # both are MISSING
        field_rule = _describe_type(hint) if is_required else ""
        plan.append(
            _Field(
                field.name,
                key=key,
                older_key=older_key,
                decode=_make_decoder(hint),
                rule=field_rule,
            )
        )
        keys |= {key, older_key}
    has_missing = "missing" in hints
    names = frozenset(field.key for field in plan)
    decode_extra_field = _make_decoder(
        typing.get_args(require_not_null(hints["extra_fields"]))[1]
    )

    def decode_part(value: Any, path: str, faults: Faults) -> Any:
        if type(value) is not dict:
            _add_fault(faults, path, value, rule)
            return None
        num_faults = len(faults)
        prefix = f"{path}." if path else ""
        fields: dict[str, Any] = {}
        for field in plan:
            key = field.key
            if key not in value and field.older_key in value:
                key = field.older_key
            if key in value:
                fields[field.name] = field.decode(value[key], prefix + key, faults)
            elif field.rule:
                faults.append(f"{prefix}{key} is missing; expected {field.rule}")
        extra_fields = {}
        for key in value:
            if key not in keys:
                extra_fields[key] = decode_extra_field(value[key], prefix + key, faults)
        if len(faults) > num_faults:
            return None
        if extra_fields:
            fields["extra_fields"] = extra_fields
        if has_missing:
            fields["missing"] = names - value.keys()
        return kind(**fields)

    return decode_part
