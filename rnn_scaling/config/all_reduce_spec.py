"""The grammar of --all_reduce_spec: the algorithm for each size of tensors.

    alg[#shards][:limit:alg[#shards]...]        e.g.  pscpu:32k:xring#2:64M:collective

Tensors of up to `limit` bytes, inclusive, use the algorithm before the limit. Limits
take k, K, M, G or T: powers of 1024. The last algorithm has no limit. This module does
not import TensorFlow.

Records and command lines contain specifications: the grammar may only grow.
"""

import dataclasses
import difflib
import re
from collections.abc import Sequence

from rnn_scaling.config.registry import ALL_REDUCES

AUTO = "auto"
# The algorithm of auto if the towers belong to several processes.
AUTO_OVER_WORKERS = "collective"
SHARDED = tuple(name for name, row in ALL_REDUCES.items() if row.has_shards)

_UNITS = {"": 1, "k": 2**10, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LIMIT = r"([0-9]+)([kKMGT]?)"
_FLAG = "--all_reduce_spec="


@dataclasses.dataclass(frozen=True)
class SpecSegment:
    """The algorithm for tensors up to a size."""

    algorithm: str
    shards: int = 1
    max_bytes: int | None = None  # None for any size


def parse(text: str) -> tuple[SpecSegment, ...]:
    """Return the segments of a spec, in the order of their limits.

    auto is a single segment with this name; `resolve_auto` returns its algorithm.

    Raises:
      ValueError: If the spec has a fault; the message has flag, part, rule and remedy.
    """
    parts = text.split(":")
    segments: list[SpecSegment] = []
    try:
        for number, part in enumerate(parts, 1):
            _check_part(part, len(parts))
            # Algorithms and limits take turns; a limit ends the segment before it.
            if number % 2:
                segments.append(_parse_segment(part))
                continue
            limit = _parse_limit(part)
            if number == len(parts):
                raise _Fault("is a limit with no algorithm after it", "add :alg")
            if number > 2 and limit <= (segments[-2].max_bytes or 0):
                rule = f"is {limit} bytes, but must be above the limit before it"
                raise _Fault(rule, "write the limits in increasing order")
            segments[-1] = dataclasses.replace(segments[-1], max_bytes=limit)
    except _Fault as fault:
        shown_text = text if text.isprintable() and text else repr(text)
        place_text = f"{_FLAG}{shown_text}: part {number}, {part!r}"
        raise ValueError(f"{place_text}, {fault.rule}; {fault.remedy}") from None
    return tuple(segments)


class _Fault(Exception):
    """A part of a spec is wrong."""

    def __init__(self, rule: str, remedy: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.remedy = remedy


def _check_part(part: str, num_parts: int) -> None:
    """Check what holds for algorithms and limits."""
    if not part:
        raise _Fault("is empty", "write alg[#shards][:limit:alg...]")
    if any(c.isspace() or not c.isprintable() for c in part):
        raise _Fault("contains a space or a control character", "leave it out")
    if part.partition("#")[0] == AUTO and (num_parts > 1 or part != AUTO):
        rule = "is auto, which takes no shards and no other algorithm"
        raise _Fault(rule, "use auto by itself, or name algorithms")


def _parse_segment(part: str) -> SpecSegment:
    """Return the segment of `alg[#shards]`, still without a limit."""
    name, mark, shards = part.partition("#")
    if name not in (AUTO, *ALL_REDUCES):
        known_names = ", ".join(ALL_REDUCES)
        if re.fullmatch(_LIMIT, name):
            raise _Fault(
                "is a limit where an algorithm belongs", f"use one of {known_names}"
            )
        close = difflib.get_close_matches(name.lower(), ALL_REDUCES, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise _Fault("is not an algorithm", f"{hint}use one of {known_names}")
    if mark and (not re.fullmatch(r"[0-9]+", shards) or int(shards) < 1):
        rule = "needs a whole number of shards >= 1 after #"
        raise _Fault(rule, f"write {name} or, for example, {name}#2")
    return SpecSegment(name, int(shards or 1))


def _parse_limit(part: str) -> int:
    """Return the bytes of `digits[kKMGT]`."""
    match = re.fullmatch(_LIMIT, part)
    if not match or int(match[1]) < 1:
        rule = "is not a limit, a whole number of bytes >= 1 with k, K, M, G or T"
        raise _Fault(rule, "write, for example, 32k (powers of 1024)")
    return int(match[1]) * _UNITS[match[2]]


def format(segments: Sequence[SpecSegment]) -> str:
    """Return the shortest text with these segments."""
    parts = []
    for segment in segments:
        shards = "" if segment.shards == 1 else f"#{segment.shards}"
        parts.append(f"{segment.algorithm}{shards}")
        if segment.max_bytes is not None:
            parts.append(_format_limit(segment.max_bytes))
    return ":".join(parts)


def _format_limit(max_bytes: int) -> str:
    for unit in ("T", "G", "M", "k"):
        if max_bytes % _UNITS[unit] == 0:
            return f"{max_bytes // _UNITS[unit]}{unit}"
    return str(max_bytes)


def select(segments: Sequence[SpecSegment], num_bytes: int) -> SpecSegment:
    """Return the segment for tensors of a size."""
    return next(s for s in segments if s.max_bytes is None or num_bytes <= s.max_bytes)


def resolve_auto(num_devices: int, device_type: str, num_physical: int) -> str:
    """Return the algorithm of auto: the best one on these devices.

    It is nccl if each tower has its own GPU. NCCL refuses two ranks on one GPU, so
    logical GPUs use psgpu, which adds on the devices of the towers. CPUs use pscpu, the
    fastest one in benchmarks/all_reduce.py: towers share the host's memory, so an
    algorithm that saves transfers only adds work.
    """
    if device_type != "gpu":
        return "pscpu"
    return "nccl" if num_physical >= num_devices > 1 else "psgpu"


def find_conflicts(
    segments: Sequence[SpecSegment],
    device_type: str,
    num_devices: int,
    num_physical: int,
) -> list[str]:
    """Return one line per conflict between a spec and the devices.

    Args:
      segments: The spec.
      device_type: "cpu" or "gpu".
      num_devices: Devices of one worker.
      num_physical: The real devices among them.
    """
    lines = []
    flag = f"{_FLAG}{format(segments)}"
    for segment in segments:
        name = segment.algorithm
        shards = segment.shards
        if name == AUTO:
            continue
        row = ALL_REDUCES[name]
        if row.needs_gpus and device_type != "gpu":
            remedy = "pscpu" if name == "psgpu" else "auto, pscpu or collective"
            lines.append(
                f"{flag}: {name} needs --device=gpu, got {device_type}; "
                f"use {remedy} on CPUs"
            )
        elif name == "nccl" and num_physical < num_devices:
            lines.append(
                f"{flag}: nccl needs a GPU for each tower, got {num_devices} towers on "
                f"{num_physical}; use auto, psgpu or collective with logical GPUs"
            )
        counts = row.device_counts
        if not counts.is_valid(num_devices):
            lines.append(
                f"{flag}: {name} needs {counts.valid} --num_devices, "
                f"got {num_devices}; use xring for {counts.invalid}"
            )
        if shards > 1 and not row.has_shards:
            lines.append(
                f"{flag}: {name} has no shards, got #{shards}; use {name} without "
                f"shards or one of {', '.join(SHARDED)} with them"
            )
        if name == "xring" and shards > max(1, num_devices):
            lines.append(
                f"{flag}: xring needs shards <= --num_devices, got #{shards} for "
                f"{num_devices}; use xring#{num_devices}"
            )
    return list(dict.fromkeys(lines))
