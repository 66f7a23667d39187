"""The grammar of --all_reduce_spec: which algorithm reduces a tensor of which size. No TensorFlow here.

    alg[#shards][:limit:alg[#shards]...]        e.g.  pscpu:32k:xring#2:64M:collective

A tensor of up to `limit` bytes, inclusive, goes to the algorithm before the limit; the last algorithm has none.
Limits take k, K, M, G or T: powers of 1024.
"""

import dataclasses
import difflib
import re
from collections.abc import Sequence

from rnn_scaling.config.registry import ALL_REDUCES

AUTO = "auto"
AUTO_OVER_WORKERS = (
    "collective"  # what auto means where ranks are towers of several processes
)
SHARDED = tuple(name for name, row in ALL_REDUCES.items() if row.has_shards)

_UNITS = {"": 1, "k": 2**10, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LIMIT = r"([0-9]+)([kKMGT]?)"
_FLAG = "--all_reduce_spec="


@dataclasses.dataclass(frozen=True)
class SpecSegment:
    """Tensors of up to `max_bytes` bytes (None: of any size) are reduced by `algorithm` in `shards` pieces."""

    algorithm: str
    shards: int = 1
    max_bytes: int | None = None


def parse(text: str) -> tuple[SpecSegment, ...]:
    """Return the segments that `text` means, in the order of their limits.

    `auto` is a single segment of that name; use `resolve_auto` instead of it.

    Raises:
      ValueError: One line with the flag, the wrong part, the rule and the remedy.
    """
    parts = text.split(":")
    segments: list[SpecSegment] = []
    try:
        for number, part in enumerate(parts, 1):
            _check_part(part, len(parts))
            if number % 2 == 0:
                limit = _limit(part)
                if number == len(parts):
                    raise _Fault("is a limit with no algorithm after it", "add :alg")
                if number > 2 and limit <= (segments[-2].max_bytes or 0):
                    rule = f"is {limit} bytes, not above the limit before it"
                    raise _Fault(rule, "write the limits in increasing order")
                segments[-1] = dataclasses.replace(segments[-1], max_bytes=limit)
            else:
                segments.append(_segment(part))
    except _Fault as fault:
        shown = text if text.isprintable() and text else repr(text)
        where = f"{_FLAG}{shown}: part {number}, {part!r}"
        raise ValueError(f"{where}, {fault.rule}; {fault.remedy}") from None
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
        raise _Fault("holds a space or a control character", "leave it out")
    if part.partition("#")[0] == AUTO and (num_parts > 1 or part != AUTO):
        rule = "is auto, which must stand alone, without shards"
        raise _Fault(rule, "use auto without limits, or name algorithms")


def _segment(part: str) -> SpecSegment:
    """Return the segment of `alg[#shards]`, still without a limit."""
    name, mark, shards = part.partition("#")
    if name not in (AUTO, *ALL_REDUCES):
        known = ", ".join(ALL_REDUCES)
        if re.fullmatch(_LIMIT, name):
            raise _Fault("is a limit where an algorithm belongs", f"use one of {known}")
        close = difflib.get_close_matches(name.lower(), ALL_REDUCES, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise _Fault("names no algorithm", f"{hint}use one of {known}")
    if mark and (not re.fullmatch(r"[0-9]+", shards) or int(shards) < 1):
        rule = "needs a whole number of shards >= 1 after #"
        raise _Fault(rule, f"write {name} or, for example, {name}#2")
    return SpecSegment(name, int(shards or 1))


def _limit(part: str) -> int:
    """Return the bytes of `digits[kKMGT]`."""
    match = re.fullmatch(_LIMIT, part)
    if not match or int(match[1]) < 1:
        rule = "is no limit, which is a whole number of bytes >= 1 with k, K, M, G or T"
        raise _Fault(rule, "write, for example, 32k (powers of 1024)")
    return int(match[1]) * _UNITS[match[2]]


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
        name = segment.algorithm
        shards = segment.shards
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
