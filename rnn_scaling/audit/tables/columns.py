"""Header words -> what a column says. docs/audit.md lists them.

A header is compared in lower case, without Markdown's marks, with underscores as blanks.
"""

from __future__ import annotations

import dataclasses
import re

_COUNTED = r"(?:gpu|cpu|tpu|device|worker|card|tower|replica|rank|process(?:e)?|accelerator|core|chip)s?"
_SECOND = r"(?:s|sec|secs|second|seconds)"
_DEVICES = re.compile(
    rf"(?:(?:number|count|num|no\.?|nr\.?|total)\s*(?:of)?\s*|#\s*|n\s)?{_COUNTED}"
    rf"(?:\s*(?:card|device)s?)?\s*(?:number|count|num|used|\(n\)|#)?|n|np|world size|gpu/s"
)
_THING = (
    r"(word|token|image|img|sample|example|sequence|sentence|pair|item|record|step|batche?|iteration|it|datapoint)s?"
)
_RATE = re.compile(rf"{_THING}\s*(?:/|per)\s*{_SECOND}\b")
_RATE_ALIASES = {"wps": "words/s", "tps": "tokens/s", "ips": "images/s", "fps": "images/s"}
_EACH = re.compile(rf"(?:/|per|a|each)\s*{_COUNTED}\b")
TIME_UNITS = {
    **{"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3},
    **{"us": 1e-6, "µs": 1e-6, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0},
}
_SEVERAL_BATCHES = re.compile(r"\d\s*(?:/|to|-|–|or)\s*\d[\d,]*\s*(?:mini-?\s?)?(?:batches|steps|iterations|iters)\b")
_BATCHES_IN_HEADER = re.compile(r"\b(\d[\d,]*)\s*(?:mini-?\s?)?(?:batches|steps|iterations|iters)\b")


_ENDS = r"low(?:er)?|high|upper|lo|hi"
_WIDTHS = (
    r"ci(?: ?95)?(?: ?%)?|confidence interval|interval|kind|std(?:\.? ?dev(?:iation)?\.?)?|std(?:dev|ev)"
    r"|std\.? ?err(?:or)?|sd|sem|standard (?:deviation|error)|half[ -]?width|±|\+/-"
)
_BOUND = re.compile(
    rf"(?P<stem>.*?)[\s.,:(\[/-]*(?<![a-z0-9])(?:95 ?% ?)?(?:(?:{_WIDTHS})[ ,(]*)?(?P<end>{_ENDS}|{_WIDTHS})"
    r"(?: (?:bound|limit|end))?(?:,? 95 ?%)?[\s)\]]*(?:[(\[][^()\[\]]*[)\]])?"
)


@dataclasses.dataclass(frozen=True)
class Column:
    """What a header says.

    role: a field of ScalingRow; "rate_each" is a rate a device; "" is not understood.
    unit: of a rate ("words/s"), else "".
    scale: seconds in one unit of a time column; 0.01 where the header says per cent.
    batches: the number of batches that the header names ("time of 20 batches").
    """

    role: str = ""
    unit: str = ""
    scale: float = 1.0
    batches: int | None = None


def plain(header: str) -> str:
    """A header for comparison."""
    return re.sub(r"\s+", " ", header.replace("_", " ").lower()).strip(" :*`")


def recognise(header: str) -> Column:
    """What a column with this header says; role "" when it is not understood."""
    text = plain(header)
    if not text or re.search(r"\bvs\b|\bover\b|\bof\b.*\bvs|ratio\b.*/", text):
        return Column()  # a comparison of other columns
    if re.search(r"speed-? ?up.*[(:,]\s*[\w. ]+?(?: to | - |-to-| -> )[\w. ]+\)?$", text):
        return Column()  # "speedup (FP32 to mixed)": of one column against another
    if re.search(r"speed-? ?up|scaling factor|^(?:weak|strong) scaling\b(?!.*eff)", text):
        return Column("speedup", scale=0.01 if "%" in text else 1.0)
    if re.search(r"efficiency|% of (?:linear|ideal)|parallel eff", text):
        return Column("efficiency", scale=0.01 if "%" in text or "percent" in text else 1.0)
    if _DEVICES.fullmatch(text):
        return Column("devices")
    if re.search(r"batch ?size|\bbs\b|^(?:(?:global|total|local) )?(?:mini-?)?batch$", text):
        return Column("global_batch_size" if re.search(r"global|total|effective|overall", text) else "batch_size")
    return _rate(text) or _seconds(text) or _counts(text)


def bound(header: str) -> tuple[str, str] | None:
    """(what it is a bound of, "low", "high" or "width"): "speedup_low" is ("speedup", "low"), "std" is ("", "width").

    None when the header names no bound, deviation or interval.
    """
    match = _BOUND.fullmatch(plain(header)) if len(header) < 120 else None  # a longer one is a sentence
    if not match:
        return None
    end = match["end"][:2] if re.fullmatch(_ENDS, match["end"]) else ""
    return match["stem"].strip(), {"lo": "low", "hi": "high", "up": "high"}.get(end, "width")


def is_about_runs(header: str) -> bool:
    """Whether a column counts the runs behind a row, or names the form of the file: nothing that was measured."""
    return bool(re.fullmatch(r"(?:number of |num |n )?(?:runs|repeats)(?: (?:ok|failed))?|schema", plain(header)))


def _rate(text: str) -> Column | None:
    match = _RATE.search(text)
    alias = next((unit for word, unit in _RATE_ALIASES.items() if re.search(rf"\b{word}\b", text)), "")
    if not match and not alias and not re.search(r"throughput|through put|thoughput|\bspeed\b|\brate\b", text):
        return None
    if re.search(r"\b[kmgt]?i?b(?:yte)?s?\s*/\s*s|clock|learning|[gt]?flops?|bandwidth|hit rate|memory", text):
        return None
    rest = text[match.end() :] if match else text
    unit = f"{match[1].replace('img', 'image').rstrip('s')}s/s" if match else alias
    return Column("rate_each" if _EACH.search(rest) else "rate", unit=unit.replace("batchs", "batches"))


def _seconds(text: str) -> Column | None:
    each = re.fullmatch(r"(s|secs?|seconds|ms|msec|us|µs)\s*(?:/|per)\s*(?:step|batch|iteration|iter|it)s?", text)
    if each:
        return Column("seconds", scale=TIME_UNITS.get(each[1], 1.0), batches=1)
    unit = re.search(r"[\[(]\s*(s|secs?|seconds?|ms|msec|us|µs|mins?|minutes?|h)\s*[\])]\s*$", text)
    bare = re.search(r"\b(seconds|secs?|ms|minutes)$", text)
    if not (unit or bare or re.search(r"\btime\b|duration|elapsed|wall", text)):
        return None
    if re.search(r"clock|date|timestamp", text):
        return None
    named = unit or bare
    scale = TIME_UNITS.get(named[1] if named else "s", 1.0)
    if _SEVERAL_BATCHES.search(text):
        return Column()  # the rows are of different work, and nothing says which is of how much
    batches = _BATCHES_IN_HEADER.search(text)
    if re.search(r"(?:/|per|a)\s*(?:step|batch|iteration)\b|\bstep time|batch time|iteration time", text):
        return Column("seconds", scale=scale, batches=1)
    return Column("seconds", scale=scale, batches=int(batches[1].replace(",", "")) if batches else None)


def _counts(text: str) -> Column:
    if re.fullmatch(r"(?:number of |num |measured |total )?(?:mini-?)?(?:batches|steps|iterations|iters)", text):
        return Column("batches")
    if re.fullmatch(rf"(?:number of |num |total |processed )*{_THING}(?: processed| seen| total)?", text):
        return Column("work")
    return Column()
