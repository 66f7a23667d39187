"""A header -> what its column says, by the words of vocabulary.py."""

from __future__ import annotations

import dataclasses
import functools
import html
import re

from rnn_scaling.audit.tables import vocabulary as words

# The role of columns that compare two others: understood, and no field of a row.
COMPARED = "compared"
RATES = ("rate", "rate_each")
TIMED = (*RATES, "seconds")
MEASURED = (*TIMED, "speedup", "efficiency")

# "speedup (FP32 to mixed)"
FROM_TO = re.compile(r"(?P<of>.*?)[(:,]\s*(?P<first>[\w. -]+?)\s*(?: to |-to-|-> ?|→|\s-\s)\s*(?P<second>[\w. -]+?)\)?")
OF_SEVERAL = re.compile(r"\b(?:max(?:imum)?|best|peak|highest)\b")  # "max speedup": each row has its own two columns
_ENGLISH = dict(enumerate(words.FOREIGN, 1))
_LETTER, _SIGN = "[a-zà-öø-ÿœа-яё]", "[\u3040-\uffdc]"  # a word of letters stands alone, one of signs need not
_FOREIGN = re.compile(
    rf"(?:(?<!{_LETTER})|(?={_SIGN}))(?:{'|'.join(f'({known})' for known in words.FOREIGN.values())})"
    rf"(?:(?!{_LETTER})|(?<={_SIGN}))"
)
_WIDE_MARKS = str.maketrans("（）：，／％［］", "():,/%[]")
_DEVICES = re.compile(words.DEVICES)
_PER_PART = re.compile(words.PER_PART)
_LIST_OF_DEVICES = re.compile(rf"(?:{words.LISTS_OF_DEVICES})(?: used)?")
_QUANTITIES = tuple((role, re.compile(says), re.compile(not_so or r"(?!)")) for role, says, not_so in words.QUANTITIES)
_OTHERS = tuple((name, re.compile(says)) for name, says in words.OTHERS)
_RATE = re.compile(
    rf"(?P<item>[a-z]+(?:-[a-z]+)*?)[\s-]*(?:\([^()]*\)[\s-]*)?"
    rf"(?:/|per|\ba(?= sec)|\bp(?=s\b))[\s-]*(?P<per>{'|'.join(words.PER_SECOND)})\b"
    r"|(?P<inverse>[a-z]+) s\^?-1\b"
)
_NO_ITEM = re.compile(words.NO_ITEM)
_EACH = re.compile(
    rf"(?:/|\bper|\ba|\beach|\bone)[ -]?(?:single )?(?:{words.ACCELERATORS} )?(?P<part>{words.COUNTED})(?![a-z])"
)
_TOTAL = re.compile(r"\b(?:total|aggregate[d]?|overall|combined|cluster|system|global|all gpus|sum)\b")
_TIME_UNIT = "|".join(sorted(words.TIME_UNITS, key=len, reverse=True))
_UNIT_AT_END = re.compile(rf"[\[(,]\s*(?:in\s+)?({_TIME_UNIT})\.?\s*[\])]?\s*$")
_BARE_UNIT = re.compile(r"\b(?:in )?(seconds?|secs?|ms|msecs?|milliseconds?|minutes|mins|hours|hrs|days|us|µs)$")
_A_STEP = re.compile(
    rf"(?P<unit>{_TIME_UNIT})\s*(?:/|per)\s*(?:(?P<batches>\d+)\s*)?(?P<of>(?:mini-?)?batch(?:es)?|steps?|iterations?|iters?|its?|[a-z]+)"
)
_SEVERAL_BATCHES = re.compile(r"\d\s*(?:/|to|-|–|or)\s*\d[\d,]*\s*(?:mini-?\s?)?(?:batches|steps|iterations|iters)\b")
_BATCHES_IN_HEADER = re.compile(r"\b(\d[\d,]*)\s*(?:mini-?\s?)?(?:batches|steps|iterations|iters)\b")
_STEP = r"(?:(?:mini-?)?batch|step|iteration|iter|it)"
_OF_A_STEP = re.compile(rf"(?:/|per|a)\s*{_STEP}\b|\b{_STEP}[ -]time|\btime ?/ ?{_STEP}\b")
_PARTS_OF_TIME = re.compile(rf"\b(?:{words.PARTS_OF_TIME})\b")
_AGAINST = re.compile(
    r"\b(?:vs\.?|versus|over|relative to|rel\.? to|compared (?:to|with)|against|w\.?r\.?t\.?"
    r"|normali[sz]ed (?:to|by)|from)\s+(?P<other>.+)"
)
_REPEATED = re.compile(
    r"\b(?:over|of|from|in)\s+(?:the )?(?:last |first |all )?\d[\d,]*\s+[a-z]*\s*"
    r"(?:runs?|trials?|rep\w*|batches|steps|it\w*|epochs?|samples?|experiments?)"
)
_OF_ONE = re.compile(
    rf"(?:a |an |the )?(?P<count>\d+|one|single|1x)?[ x×-]*(?:{words.ACCELERATORS} )?"
    rf"(?P<noun>{words.COUNTED}|serial|sequential)\b.*|(?:[dtp]p|np?|p|w) ?=? ?1"
)


_ENDS = r"low(?:er)?|high|upper|lo|hi"
_WIDTHS = (
    r"ci(?: ?95)?(?: ?%)?|confidence interval|interval|kind|std(?:\.? ?dev(?:iation)?\.?)?|std(?:dev|ev)"
    r"|std\.? ?err(?:or)?|sd|sem|standard (?:deviation|error)|half[ -]?width|±|\+/-|stdev|sigma|σ|variance|cv"
)
_BOUND = re.compile(
    rf"(?P<stem>.*?)[\s.,:(\[/-]*(?<![a-z0-9])(?:95 ?% ?)?(?:(?:{_WIDTHS})[ ,(]*)?(?P<end>{_ENDS}|{_WIDTHS})"
    r"(?: (?:bound|limit|end))?(?:,? 95 ?%)?[\s)\]]*(?:[(\[][^()\[\]]*[)\]])?"
)


@dataclasses.dataclass(frozen=True)
class Column:
    """What a header says.

    role: a field of ScalingRow, "per_part" (GPUs per node), "accumulation", "ids" (a list of devices), COMPARED; "" for
      what has no field.
    unit: of a rate ("words/s"); of devices what is counted ("gpus", "nodes"; per_part: "gpus/nodes"); of COMPARED "".
    scale: seconds in one unit of a time column, 0.01 where the header says per cent, 1/60 for "images/min".
    batches: the number of batches that the header names ("time of 20 batches").
    scope: "total" for a rate that is declared to be of all devices, else "".
    scaling: "weak" or "strong" where the header says so.
    baseline: the number of devices that the header says a speedup is against; None: not said.
    other: what a column without a role measures ("accuracy"), "" when it is not understood.
    part: a time of a part of the work (communication): no speedup is of it.
    each: of a rate of one device, what that is ("gpus", "nodes").
    sure: False where only the values can bear out that the column says this.
    """

    role: str = ""
    unit: str = ""
    scale: float = 1.0
    batches: int | None = None
    scope: str = ""
    scaling: str = ""
    baseline: int | None = None
    other: str = ""
    part: bool = False
    each: str = ""
    sure: bool = True

    @property
    def quantity(self) -> str:
        """What is measured, with its unit: columns of one quantity may be divided by each other and averaged."""
        if not self.role:
            return self.other
        return f"{self.role} {self.unit or f'x {self.scale:g}'}".strip()


@functools.lru_cache(maxsize=65536)
def plain(header: str) -> str:
    """A header for comparison: "numGPUs" and "num_gpus" are "num gpus"."""
    if "&" in header:
        header = html.unescape(header)
    if " " not in header and not header.isupper():
        header = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", header)
    text = re.sub(r"\s+", " ", header.replace("_", " ").replace("−", "-").replace("\\", "").lower())
    text = re.sub(r"(?:\[\^?(?!(?:[mnuµ]?s|h)\])\w{1,2}\]|\^\w|[†‡§¹²³⁴*])+$", "", text.strip(" :*`")).strip(" :*`")
    return _in_english(text) if _FOREIGN.search(text) else text


def _in_english(text: str) -> str:
    """A header with the words that are known of other languages in English."""
    text = _FOREIGN.sub(lambda match: f" {_ENGLISH[match.lastindex or 0]} ", text.translate(_WIDE_MARKS))
    return re.sub(r"(?<=[(\[]) | (?=[)\],:])", "", re.sub(r"\s+", " ", text)).strip(" :*`")


def words_of(header: str) -> frozenset[str]:
    """The words and numbers of a header, in the form of `plain`."""
    return frozenset(re.findall(r"[a-z0-9%]+", plain(header)))


@functools.lru_cache(maxsize=65536)
def recognise(header: str) -> Column:
    """What a column with this header says; role and other are "" when it is not understood."""
    text = plain(header)
    if not text or len(text) > 200:
        return Column()
    per_part = _PER_PART.fullmatch(text)
    if per_part:
        return Column("per_part", unit=f"{noun(per_part['part'])}/{noun(per_part['whole'])}")
    if _LIST_OF_DEVICES.fullmatch(text):
        return Column("ids")
    counted = re.sub(rf"\s*\((?:{words.ACCELERATORS}|{words.COUNTED})\)$", "", text)
    if _DEVICES.fullmatch(counted):
        return Column("devices", unit=noun(counted))
    return _compared(text) or _quantity(text) or _rate(text) or _seconds(text) or _counts(text) or _other(text)


def of_unit(unit: str) -> Column:
    """What a unit behind a number says of it: a time, a rate; role "" for every other."""
    if unit.lower() in words.TIME_UNITS:
        return Column("seconds")
    kind = recognise(unit)
    return kind if kind.role in RATES else Column()


@functools.lru_cache(maxsize=1024)
def noun(text: str) -> str:
    """Which of vocabulary.NOUNS a text counts; "gpus" where it does not say ("n", "world size")."""
    nouns = [
        (match.start(), name)
        for name, pattern in words.NOUNS.items()
        if (match := re.search(rf"\b(?:{pattern})(?:s|\(s\))?(?![a-z])", text.lower()))
    ]
    return max(nouns)[1] if nouns else "gpus"


def _compared(text: str) -> Column | None:
    """A header that sets two things against each other; a speedup over one device is none."""
    gains = re.search(r"speed-? ?up|faster|gain|improvement|accelerat|scaling|\beff", text)
    if re.search(r"\bof\b.*\bvs|ratio\b.*/|\b(?:change|delta|diff(?:erence)?)\b", text):
        return Column(COMPARED)
    against = _AGAINST.search(_REPEATED.sub(" ", text))
    if against:
        other = against["other"].strip(" )]")
        if re.match(r"(?:the )?(?:linear|ideal|perfect)", other):
            return Column("efficiency", scale=0.01 if "%" in text else 1.0)
        one = _OF_ONE.fullmatch(other)
        if one and gains and not re.search(words.PRECISIONS, text):
            count = one["count"] or "1"  # "vs DP1"
            role = "efficiency" if "eff" in text else "speedup"
            percent = 0.01 if "%" in text else 1.0
            return Column(role, scale=percent, baseline=int(count) if count.isdecimal() else 1, scaling=_stated(text))
        if re.match(r"baseline|base\b|first", other) and gains:
            return Column("speedup", sure=False)
        return Column(COMPARED) if gains or "ratio" in text or against[0][:2] in ("vs", "ve") else None
    if gains and FROM_TO.fullmatch(text):
        return Column(COMPARED)
    faster = re.search(r"speed-? ?up|faster|gain", text)
    if faster and re.search(words.PRECISIONS, text) and not re.search(rf"{words.FULL_PRECISION}|scaling", text):
        return Column(COMPARED, unit="precision")  # "AMP speedup": unless the table has one of FP32 too
    if re.search(r"\b(?:relative|normali[sz]ed|rel\.)\s", text) and not re.search(r"humidity|error", text):
        return Column("speedup", sure=False) if re.search(r"speed|throughput|performance", text) else Column(COMPARED)
    return None


def _stated(text: str) -> str:
    """ "weak" or "strong" where a text says one of them."""
    said = set(re.findall(r"\b(weak|strong)(?:ly)?[ -]?(?:scal|eff|speed)", text))
    return said.pop() if len(said) == 1 else ""


@functools.lru_cache(maxsize=65536)
def stated_scaling(*texts: str) -> str:
    """ "weak" or "strong", where the first text that names either names one alone."""
    return next((said for text in texts if (said := _stated(plain(text)))), "")


def _quantity(text: str) -> Column | None:
    for role, says, not_so in _QUANTITIES:
        if not says.search(text) or not_so.search(text):
            continue
        if role == "batch_size" and not _EACH.search(text) and re.search(r"global|total|effective|overall", text):
            role = "global_batch_size"
        percent = role in ("speedup", "efficiency") and bool(re.search(r"%|percent|\bpct\b", text))
        vague = text in ("scaling", "scaling factor", "scaling ratio")
        return Column(role, scale=0.01 if percent else 1.0, scaling=_stated(text), sure=not vague)
    return None


@functools.lru_cache(maxsize=65536)
def bound(header: str) -> tuple[str, str] | None:
    """(what it is a bound of, "low", "high" or "width"): "speedup_low" is ("speedup", "low"), "std" is ("", "width").

    None when the header names no bound, deviation or interval.
    """
    match = _BOUND.fullmatch(plain(header)) if len(header) < 120 else None  # a longer one is a sentence
    if not match:
        return None
    end = match["end"][:2] if re.fullmatch(_ENDS, match["end"]) else ""
    return match["stem"].strip(), {"lo": "low", "hi": "high", "up": "high"}.get(end, "width")


def timed_thing(header: str) -> str:
    """What a time is of one of: "steps" of "ms/step", "images" of "s/image"; "" where the header does not say it."""
    step = _A_STEP.search(plain(header))
    return _item(step["of"]) if step and not step["batches"] else ""


@functools.lru_cache(maxsize=65536)
def is_about_runs(header: str) -> bool:
    """Whether a column counts the runs behind a row, or names the form of the file: nothing that was measured."""
    return bool(
        re.fullmatch(r"(?:number of |num |n |# ?)?(?:runs|repeats|trials)(?: (?:ok|failed))?|schema", plain(header))
    )


def _rate(text: str) -> Column | None:
    match = next((m for m in _RATE.finditer(text) if not _NO_ITEM.fullmatch(m["item"] or m["inverse"])), None)
    if match and (match["item"] or "") in words.TIME_UNITS:
        match = None  # "ms per s"
    alias = next((unit for word, unit in words.RATE_ALIASES.items() if re.search(rf"\b{word}\b", text)), "")
    if not match and not alias and not re.search(words.RATE_WORDS, text):
        return None
    if re.search(words.NO_RATE, text) or (not match and _RATE.search(text)):
        return None
    if not match and not alias and (_UNIT_AT_END.search(text) or _A_STEP.search(text) or "(x)" in text):
        return None  # "speed (s/step)"
    item = _item(match["item"] or match["inverse"]) if match else ""
    scale = words.PER_SECOND.get(match["per"] or "s", 1.0) if match else 1.0
    each = _EACH.search(text[: match.start()] + " " + text[match.end() :] if match else text)
    scope = "total" if _TOTAL.search(text) and not each else ""
    unit = f"{item}/s" if match else alias
    role, of = ("rate_each", noun(each["part"])) if each else ("rate", "")
    return Column(role, unit=unit, scale=scale, scope=scope, scaling=_stated(text), each=of)


def _item(word: str) -> str:
    """The plural of what is counted: "img" is "images"."""
    word = words.ITEM_NAMES.get(word, word)
    word = words.ITEM_NAMES.get(word.rstrip("s"), word).rstrip("s") if word != "series" else word
    return "batches" if word in ("batch", "batche") else f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def _seconds(text: str) -> Column | None:
    if re.search(words.NO_TIME, text):
        return None
    step = _A_STEP.search(text)
    part = bool(_PARTS_OF_TIME.search(text)) and not re.search(r"\btotal\b|wall", text)
    if step and re.search(rf"(?:^|[\s(\[,]){re.escape(step[0])}", text) and not _RATE.search(step[0]):
        of_step = re.fullmatch(rf"{_STEP}(?:es|s)?", step["of"])
        number = int(step["batches"] or 1) if of_step else None
        return Column("seconds", scale=words.TIME_UNITS[step["unit"]], batches=number, part=part)
    named = _UNIT_AT_END.search(text) or _BARE_UNIT.search(text)
    says_time = re.search(r"\btimes?\b|runtime|walltime|duration|elapsed|wall|\bttt\b|\bt(?:ime)? ?\((?:n|p)\)$", text)
    if not named and not says_time:
        return None
    if named and not says_time and named[1] in ("m", "h", "s", "ns", "day", "days") and len(text) > len(named[0]) + 30:
        return None
    scale = words.TIME_UNITS.get(named[1] if named else "s", 1.0)
    if _SEVERAL_BATCHES.search(text):
        return Column()  # the rows are of different work, and nothing says which is of how much
    batches = _BATCHES_IN_HEADER.search(text)
    if batches:
        return Column("seconds", scale=scale, batches=int(batches[1].replace(",", "")), part=part)
    return Column("seconds", scale=scale, batches=1 if _OF_A_STEP.search(text) else None, part=part)


_THING = (
    r"(?:word|token|image|img|sample|example|sequence|sentence|pair|item|record|step|batche?|iteration|it|datapoint)s?"
)


def _counts(text: str) -> Column | None:
    if re.fullmatch(r"(?:number of |num |measured |total )?(?:mini-?)?(?:batches|steps|iterations|iters)", text):
        return Column("batches")
    work = re.fullmatch(rf"(?:number of |num |total |processed )*(?P<item>{_THING})(?: processed| seen| total)?", text)
    if work:
        return Column("work", unit=f"{_item(work['item'])}/s")
    return None


def _other(text: str) -> Column:
    """What the header measures, although no row has a field for it."""
    return Column(other=next((name for name, says in _OTHERS if says.search(text)), ""))
