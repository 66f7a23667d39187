"""JSON objects <-> frozen dataclasses: what each field must be follows from its annotation, and every fault is named.

A part is a dataclass below `Part`. Its fields are numbers, texts, tuples, mappings and parts; `Range` says which
numbers can be. Metadata of a field: `key`, its name in the file; `older`, its name in older files; `former`: only older
versions wrote it.
"""

import dataclasses
import functools
import itertools
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union

# Limits of seconds and counts; beyond them, sums and ratios overflow.
SMALLEST = 1e-12
LARGEST = 1e18
LARGEST_SINGLE = 3.5e38  # all of float32

Faults = list[str]
Decode = Callable[
    [Any, str, Faults], Any
]  # value, its path, faults so far -> the value as it is kept
P = TypeVar("P", bound="Part")


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, whole or not, and what they are in words."""

    low: float
    high: float
    words: str


Number = Annotated[float, Range(-LARGEST, LARGEST, "a number")]
Single = Annotated[float, Range(-LARGEST_SINGLE, LARGEST_SINGLE, "a number")]
Loss = Single  # a run that diverges says so in its record
Count = Annotated[int, Range(0, LARGEST, "a number")]
Seconds = Annotated[float, Range(0, LARGEST, "seconds")]
Joules = Annotated[float, Range(0, LARGEST, "joules")]
Length = Annotated[float, Range(SMALLEST, LARGEST, "a number above 0")]
Fraction = Annotated[float, Range(0, 0.99, "a share below 1")]
Name = Annotated[str, "printable"]
PositiveCount = Annotated[int, Range(SMALLEST, LARGEST, "a number above 0")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An object of a file. further: fields of a newer version, which are kept and written again."""

    further: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sparse(Part):
    """A part that is written without fields that are None: most of them apply to one kind of device or run."""


def decode(kind: Any, value: Any, path: str, faults: Faults) -> Any:
    """A part, or a value of another type, from parsed JSON; faults of a part make it None."""
    return _decoder(kind)(value, path, faults)


def build(kind: type[P], fields: Mapping[str, Any], path: str = "") -> P:
    """A part from fields that this program made itself."""
    faults: Faults = []
    part: P | None = decode(kind, fields, path or kind.__name__.lower(), faults)
    if part is None:
        raise ValueError(". ".join(faults))
    return part


def encode(value: Any) -> Any:
    """Parsed JSON of a part or of anything inside it; NaN and infinities become null."""
    if isinstance(value, Part):
        missing = getattr(value, "missing", ())
        fields = {}
        for field in _written(type(value)):  # type: ignore[arg-type]  # as in `decode`
            item = getattr(value, field.name)
            may_lack = isinstance(value, Sparse) or field.metadata.get("former")
            if field.name not in missing and not (may_lack and item is None):
                fields[field.metadata.get("key", field.name)] = encode(item)
        return {**fields, **encode(value.further or {})}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return (
        [encode(item) for item in value] if isinstance(value, (list, tuple)) else value
    )


def spelled(value: Any) -> str:
    """A value as it is quoted in a fault."""
    try:
        text = "missing" if value is None else repr(value)
    except ValueError:  # Python spells no whole number of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= 40 else text[:37] + "..."


def are_numbers(values: Sequence[Any], low: float, high: float) -> bool:
    """Whether all are numbers in a range; at the speed of C, for there are millions."""
    if not {*map(type, values)} <= {int, float}:
        return False
    return not values or (
        min(values) >= low and max(values) <= high and not any(map(math.isnan, values))
    )


@functools.cache
def _written(kind: type[Part]) -> list[dataclasses.Field]:
    """The fields that a file has."""
    return [
        field
        for field in dataclasses.fields(kind)
        if field.name not in ("further", "missing")
    ]


@functools.cache
def _decoder(annotation: Any, or_null: str = "") -> Decode:
    """What reads a value of this type; `or_null` ends what a fault expects."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation is Any:
        return lambda value, path, faults: value
    if origin in (Union, types.UnionType):
        decode_inner = _decoder(not_null(annotation), " or null")
        return lambda value, path, faults: (
            None if value is None else decode_inner(value, path, faults)
        )
    expected = _words(annotation) + or_null
    if origin is Annotated:
        return (
            _number(arguments[1], expected)
            if isinstance(arguments[1], Range)
            else _scalar(str, expected)
        )
    if origin is tuple:
        inner = arguments[0]
        if typing.get_origin(inner) is tuple and _is_range(typing.get_args(inner)[0]):
            return _number_lists(inner, expected)
        return (
            _numbers(inner, expected)
            if _is_range(not_null(inner))
            else _tuple(_decoder(inner), expected)
        )
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_decoder(arguments[1]), expected)
    is_part = isinstance(annotation, type) and issubclass(annotation, Part)
    return _part(annotation, expected) if is_part else _scalar(annotation, expected)


def _is_range(annotation: Any) -> bool:
    return typing.get_origin(annotation) is Annotated and isinstance(
        typing.get_args(annotation)[1], Range
    )


def not_null(annotation: Any) -> Any:
    """The type of a value that is not null."""
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    (known,) = [
        argument
        for argument in typing.get_args(annotation)
        if argument is not type(None)
    ]
    return known


def _words(annotation: Any) -> str:
    """What a value of this type is, in words."""
    if _is_range(annotation):
        return typing.get_args(annotation)[1].words
    known = {str: "text", Name: "a name", bool: "true or false", int: "a whole number"}
    if annotation in known:
        return known[annotation]
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(
            "null" if kind is type(None) else _words(kind)
            for kind in typing.get_args(annotation)
        )
    return "a list" if typing.get_origin(annotation) is tuple else "an object"


def _wrong(faults: Faults, path: str, value: Any, expected: str) -> None:
    faults.append(f"{path} is {spelled(value)}; expected {expected}")


def _scalar(kind: type, expected: str) -> Decode:
    def decode_scalar(value: Any, path: str, faults: Faults) -> Any:
        if type(value) is not kind or (
            expected.startswith("a name") and not str(value).isprintable()
        ):
            _wrong(faults, path, value, expected)
        return value

    return decode_scalar


def _number(allowed: Range, expected: str) -> Decode:
    low = allowed.low
    high = allowed.high

    def decode_number(value: Any, path: str, faults: Faults) -> Any:
        if type(value) not in (int, float) or not low <= value <= high:
            _wrong(faults, path, value, expected)
        return value

    return decode_number


def _numbers(annotation: Any, expected: str) -> Decode:
    """Numbers in a list, some of them null where they may be: judged all at once where they are right."""
    allowed = typing.get_args(not_null(annotation))[1]
    decode_number = _decoder(annotation)
    or_null = not_null(annotation) is not annotation

    def decode_numbers(value: Any, path: str, faults: Faults) -> Any:
        if type(value) is not list:
            _wrong(faults, path, value, expected)
            return None
        numbers = [item for item in value if item is not None] if or_null else value
        if not are_numbers(numbers, allowed.low, allowed.high):
            before = len(faults)
            for i, item in enumerate(value):
                decode_number(item, f"{path}[{i}]", faults)
            shorten(faults, before)
        return tuple(value)

    return decode_numbers


def _number_lists(annotation: Any, expected: str) -> Decode:
    """Lists of numbers in a list, as a number of each tower for each batch: judged all at once where they are right."""
    allowed = typing.get_args(typing.get_args(annotation)[0])[1]
    one_by_one = _tuple(_decoder(annotation), expected)

    def decode_number_lists(value: Any, path: str, faults: Faults) -> Any:
        is_whole = type(value) is list and {*map(type, value)} <= {list}
        if is_whole and are_numbers(
            [*itertools.chain.from_iterable(value)], allowed.low, allowed.high
        ):
            return tuple(map(tuple, value))
        return one_by_one(value, path, faults)

    return decode_number_lists


def shorten(faults: Faults, before: int) -> None:
    """Makes the faults of one list, those from `before` on, its first one and the number of the others."""
    if (more := len(faults) - before - 1) > 0:
        faults[before:] = [f"{faults[before]} (and {more} more in this list)"]


def _tuple(inner: Decode, expected: str) -> Decode:
    def decode_tuple(value: Any, path: str, faults: Faults) -> Any:
        if type(value) is not list:
            _wrong(faults, path, value, expected)
            return None
        return tuple(
            [inner(item, f"{path}[{i}]", faults) for i, item in enumerate(value)]
        )

    return decode_tuple


def _mapping(inner: Decode, expected: str) -> Decode:
    def decode_mapping(value: Any, path: str, faults: Faults) -> Any:
        if type(value) is not dict:
            _wrong(faults, path, value, expected)
            return None
        for key, item in value.items():
            inner(item, f"{path}.{key}", faults)
        return value

    return decode_mapping


def _part(kind: type[Part], expected: str) -> Decode:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [
        field
        for field in dataclasses.fields(kind)
        if field.name not in ("further", "missing")
    ]
    plan = []
    for field in fields:
        key = field.metadata.get("key", field.name)
        older = field.metadata.get("older")
        plan.append((field.name, key, older, _decoder(hints[field.name])))
    without_default = [
        f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING
    ]
    required = {name: _words(hints[name]) for name in without_default}
    names = frozenset(key for _, key, _, _ in plan)
    known = names | {older for _, _, older, _ in plan if older}
    tells_missing = "missing" in hints
    decode_further = _decoder(typing.get_args(not_null(hints["further"]))[1])

    def decode_part(value: Any, path: str, faults: Faults) -> Any:
        if type(value) is not dict:
            _wrong(faults, path, value, expected)
            return None
        fields: dict[str, Any] = {}
        before = len(faults)
        prefix = f"{path}." if path else ""
        for name, key, older, inner in plan:
            if key not in value and older in value:
                key = older
            if key in value:
                fields[name] = inner(value[key], prefix + key, faults)
            elif name in required:
                faults.append(f"{prefix}{key} is missing; expected {required[name]}")
        if newer := value.keys() - known:
            fields["further"] = {
                key: decode_further(value[key], prefix + key, faults)
                for key in value
                if key in newer
            }
        if len(faults) > before:
            return None
        if tells_missing:
            fields["missing"] = names - value.keys()
        return kind(**fields)

    return decode_part
