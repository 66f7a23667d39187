"""The grammar of --all_reduce_spec: which algorithm reduces a tensor of which size. No TensorFlow here.

    alg[#shards][:limit:alg[#shards]...]        e.g.  pscpu:32k:xring#2:64M:collective

A tensor of up to `limit` bytes, inclusive, goes to the algorithm before the limit; the last algorithm has none.
Limits take k, K, M, G or T: powers of 1024.
"""

import dataclasses
import difflib
import re
from collections.abc import Sequence
from typing import NoReturn

from rnn_scaling.config.registry import ALL_REDUCES

AUTO = "auto"
AUTO_OVER_WORKERS = (
    "collective"  # what auto means where ranks are towers of several processes
)
SHARDED = tuple(name for name, row in ALL_REDUCES.items() if row.has_shards)

_UNITS = {"": 1, "k": 2**10, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_FLAG = "--all_reduce_spec="


@dataclasses.dataclass(frozen=True)
class SpecSegment:
    """Tensors of up to `max_bytes` bytes (None: of any size) are reduced by `algorithm` in `shards` pieces."""

    algorithm: str
    shards: int = 1
    max_bytes: int | None = None


def parse(text: str) -> tuple[SpecSegment, ...]:
    """The segments that `text` means, in the order of their limits.

    `auto` stands alone and comes back as one segment of that name: put `resolve_auto`'s text in its place. A
    ValueError has one line with the flag, the part that is wrong, the rule and the remedy.
    """
    parts = text.split(":")
    for number, part in enumerate(parts, 1):
        if not part:
            _fail(
                text,
                number,
                part,
                "is empty",
                "write alg[#shards][:limit:alg...], such as pscpu:32k:xring#2",
            )
        if any(c.isspace() or not c.isprintable() for c in part):
            _fail(
                text,
                number,
                part,
                "holds a space or a control character",
                "write the spec without any",
            )
    if AUTO in parts and len(parts) > 1:
        remedy = "use auto without limits, or name algorithms"
        _fail(
            text, parts.index(AUTO) + 1, AUTO, "is auto, which must stand alone", remedy
        )
    if len(parts) % 2 == 0:
        remedy = "add :alg for the larger tensors or drop it"
        _fail(
            text, len(parts), parts[-1], "is a limit with no algorithm after it", remedy
        )
    limits = [
        _limit(text, number, parts[number - 1]) for number in range(2, len(parts), 2)
    ]
    for index in range(1, len(limits)):
        if limits[index] <= limits[index - 1]:
            rule = f"is {limits[index]} bytes, not above the limit before it, {parts[2 * index - 1]}"
            _fail(
                text,
                2 * index + 2,
                parts[2 * index + 1],
                rule,
                "write the limits in increasing order",
            )
    algorithms = [
        _algorithm(text, number, parts[number - 1])
        for number in range(1, len(parts) + 1, 2)
    ]
    return tuple(
        SpecSegment(*algorithm, limit)
        for algorithm, limit in zip(algorithms, [*limits, None], strict=True)
    )


def _algorithm(text: str, number: int, part: str) -> tuple[str, int]:
    """Name and shards of `alg[#shards]`."""
    name, mark, shards = part.partition("#")
    if name == AUTO and not mark:
        return AUTO, 1
    if name not in ALL_REDUCES:
        known = ", ".join(ALL_REDUCES)
        if name == AUTO:
            _fail(
                text,
                number,
                part,
                "gives auto shards",
                "use auto alone, or name an algorithm",
            )
        if re.fullmatch(r"[0-9]+[kKMGT]?", name):
            _fail(
                text,
                number,
                part,
                "is a limit where an algorithm belongs",
                f"use one of {known}",
            )
        close = difflib.get_close_matches(name.lower(), ALL_REDUCES, n=1)
        remedy = (
            f"did you mean {close[0]}? Algorithms: {known}"
            if close
            else f"use one of {known}"
        )
        _fail(text, number, part, "names no algorithm", remedy)
    if mark and (not re.fullmatch(r"[0-9]+", shards) or int(shards) < 1):
        remedy = f"write {name} or, for example, {name}#2"
        _fail(text, number, part, "needs a whole number of shards >= 1 after #", remedy)
    return name, int(shards) if mark else 1


def _limit(text: str, number: int, part: str) -> int:
    """Bytes of `digits[kKMGT]`."""
    match = re.fullmatch(r"([0-9]+)([kKMGT]?)", part)
    if not match or int(match[1]) < 1:
        rule = "is no limit, which is a whole number of bytes >= 1 with k, K, M, G or T (powers of 1024)"
        _fail(text, number, part, rule, "write, for example, 32k")
    return int(match[1]) * _UNITS[match[2]]


def _fail(text: str, number: int, part: str, rule: str, remedy: str) -> NoReturn:
    shown = text if text.isprintable() and text else repr(text)
    raise ValueError(f"{_FLAG}{shown}: part {number}, {part!r}, {rule}; {remedy}")


def format(segments: Sequence[SpecSegment]) -> str:
    """The shortest text that parses to `segments`."""
    parts = []
    for segment in segments:
        parts.append(
            segment.algorithm
            if segment.shards == 1
            else f"{segment.algorithm}#{segment.shards}"
        )
        if segment.max_bytes is not None:
            unit = next(
                unit
                for unit in ("T", "G", "M", "k", "")
                if segment.max_bytes % _UNITS[unit] == 0
            )
            parts.append(f"{segment.max_bytes // _UNITS[unit]}{unit}")
    return ":".join(parts)


def select(segments: Sequence[SpecSegment], num_bytes: int) -> SpecSegment:
    """The segment that reduces a tensor of `num_bytes` bytes."""
    return next(s for s in segments if s.max_bytes is None or num_bytes <= s.max_bytes)


def resolve_auto(num_devices: int, device_type: str, num_physical: int) -> str:
    """What `auto` means: the best that the devices allow.

    `nccl` where each tower has a GPU of its own. NCCL refuses two ranks on one GPU, so logical GPUs add on the towers'
    devices (`psgpu`). CPUs do the same (`pscpu`), the fastest of benchmarks/all_reduce.py: towers share the host's
    memory there, so an algorithm that saves transfers only adds work.
    """
    if device_type != "gpu":
        return "pscpu"
    return "nccl" if num_physical >= num_devices > 1 else "psgpu"


def problems(
    segments: Sequence[SpecSegment],
    device_type: str,
    num_devices: int,
    num_physical: int,
) -> list[str]:
    """Every conflict between the spec and the devices of a kind, "cpu" or "gpu", a line each."""
    lines = []
    flag = f"{_FLAG}{format(segments)}"
    for segment in segments:
        name, shards = segment.algorithm, segment.shards
        if name == AUTO:
            continue
        row = ALL_REDUCES[name]
        if row.needs_gpus and device_type != "gpu":
            remedy = "pscpu" if name == "psgpu" else "auto, pscpu or collective"
            lines.append(
                f"{flag}: {name} needs --device=gpu, got {device_type}; use {remedy} on CPUs"
            )
        elif name == "nccl" and num_physical < num_devices:
            lines.append(
                f"{flag}: nccl needs a GPU for each tower, got {num_devices} towers on {num_physical}; "
                "use auto, psgpu or collective with logical GPUs"
            )
        taken, others, takes = row.ranks
        if not takes(num_devices):
            lines.append(
                f"{flag}: {name} needs {taken} --num_devices, got {num_devices}; use xring for {others}"
            )
        if shards > 1 and not row.has_shards:
            remedy = f"use {name} alone or one of {', '.join(SHARDED)} with them"
            lines.append(f"{flag}: {name} has no shards, got #{shards}; {remedy}")
        if name == "xring" and shards > max(1, num_devices):
            lines.append(
                f"{flag}: xring needs shards <= --num_devices, got #{shards} for {num_devices}; use xring#{num_devices}"
            )
    return list(dict.fromkeys(lines))
