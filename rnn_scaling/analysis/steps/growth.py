"""How kernels grow with the length of the sequences: an exact line through counts of runs of several lengths. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from rnn_scaling.analysis.rows import work_key
from rnn_scaling.analysis.steps.counts import HOW_MEASURED, CountGroup, StepCounts, own_decoder, varies

LENGTHS = ("src_max_len", "tgt_max_len")
PARTS = ("all", "forward", "backward")
FEWEST = 2  # lengths that make a line
FEWEST_TO_CHECK = 3  # lengths from which on a line can be false


@dataclasses.dataclass(frozen=True)
class Line:
    """Kernels of a step at some lengths of one side's sentences, the other side's being the same."""

    title: str  # of the groups, without this length
    encoder: str
    num_devices: int
    phase: str
    option: str
    lengths: tuple[int, ...]
    values: tuple[int, ...]

    @property
    def slope(self) -> Fraction:
        """Kernels a position between the first and the last length."""
        return Fraction(self.values[-1] - self.values[0], self.lengths[-1] - self.lengths[0])

    @property
    def exact(self) -> bool:
        """Whether every count lies on the line."""
        return all(v == self.values[0] + self.slope * (n - self.lengths[0]) for n, v in zip(self.lengths, self.values))

    @property
    def formula(self) -> str:
        """ "1,234 + 56 T"."""
        start = self.values[0] - self.slope * self.lengths[0]
        return f"{_number(start)} {'-' if self.slope < 0 else '+'} {_number(abs(self.slope))} T"

    @property
    def verdict(self) -> str:
        """The formula where the counts lie on a line; two lengths always do."""
        if len(self.lengths) < FEWEST_TO_CHECK:
            return f"{self.formula} (only two lengths)"
        return self.formula if self.exact else "not linear"


def lines(groups: Sequence[CountGroup]) -> list[Line]:
    """A line for each encoder, number of devices and phase whose runs differ in one side's length alone."""
    grown = []
    for option in LENGTHS:
        families: dict[tuple, list[CountGroup]] = {}
        for group in groups:
            if not varies(group.config):  # then sentences have exactly these lengths
                families.setdefault(_family(group.config, option), []).append(group)
        for members in families.values():
            members = sorted(members, key=lambda group: group.config[option])
            if len({group.config[option] for group in members}) >= FEWEST:
                grown += _of_family(members, option)
    return grown


def _of_family(members: Sequence[CountGroup], option: str) -> list[Line]:
    grown = []
    for encoder in dict.fromkeys(e for group in members for e in group.encoders):
        for number in sorted({n for group in members for n in group.device_counts}):
            found = {group.config[option]: group.find(encoder, number) for group in members}
            there = {length: counts for length, counts in found.items() if counts}
            for phase in PARTS if len(there) >= FEWEST else ():
                values = tuple(_kernels(counts, phase) for counts in there.values())
                grown.append(Line(_title(members[0], option), encoder, number, phase, option, tuple(there), values))
    return grown


def _title(group: CountGroup, option: str) -> str:
    """ "replicated" of "replicated, src_max_len=10"."""
    return ", ".join(word for word in group.title.split(", ") if not word.startswith(f"{option}="))


def _family(config: Mapping[str, Any], option: str) -> tuple:
    """What groups that differ in this length alone have in common."""
    key = work_key(dict(config), encoder_type="", decoder_type="", num_devices=1, **{option: 0})
    return (own_decoder(config), *(item for item in key if item[0] not in HOW_MEASURED))


def _kernels(counts: StepCounts, phase: str) -> int:
    return counts.kernels if phase == "all" else counts.kernels_by_phase.get(phase, 0)


def _number(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.3f}"
