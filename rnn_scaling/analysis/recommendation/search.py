"""What to measure next, and what the measurements say. Pure: rates in, candidates or an answer out.

modes (all together) -> options of the fastest, one at a time -> a check of their combination -> Answer
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.analysis.recommendation import factors
from rnn_scaling.analysis.recommendation.factors import FACTORS, Candidate, Machine
from rnn_scaling.analysis.recommendation.ranking import FASTER, Ranking, rank, worth_a_round

STAGES = MODES, OPTIONS, CHECK = range(3)
FEWEST, MOST = 2, 3  # rounds of a stage


class Trial(NamedTuple):
    """One process: which candidate, in which stage and in which of its rounds (from 1)."""

    stage: int
    round: int
    candidate: Candidate

    @property
    def repeat(self) -> int:
        """Number of the round among all; runs of the same one ran beside each other."""
        return self.stage * MOST + self.round


Rates = Mapping[Trial, float | None]  # items/s; None: it failed


class Budget(NamedTuple):
    """Time that is left, and what a trial takes; seconds. Trials that were measured cost nothing."""

    left_s: float
    seconds: Callable[[Trial], float]

    def affords(self, trials: Sequence[Trial], share: float = 1.0) -> bool:
        """Whether these trials fit into a share of what is left."""
        return sum(map(self.seconds, trials)) <= share * self.left_s


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the measurements say.

    Attributes:
      taken: the configuration to take; None: nothing was measured that could be taken.
      modes: the modes against the fastest; None where only one can run, or nothing was measured.
      pivot: the mode whose options were tried.
      options: its options against it; None: none were measured.
      check: the combination against the best single option, where there was one.
      gains: options that are shown to be faster and change training, and are not allowed, the best first.
      failed: candidates of which no run measured anything.
      left_out: candidates that were not measured, for want of time.
    """

    taken: Candidate | None
    modes: Ranking[Candidate] | None
    pivot: Candidate
    options: Ranking[Candidate] | None
    check: Ranking[Candidate] | None
    gains: tuple[Candidate, ...]
    failed: tuple[Candidate, ...]
    left_out: tuple[Candidate, ...]


@dataclasses.dataclass(frozen=True)
class Search:
    """What is asked.

    Attributes:
      lists: values of each trainer flag that was given.
      allow: options that change training and may be taken.
      machine: what there is to run on.
    """

    lists: Mapping[str, Sequence[Any]]
    allow: frozenset[str]
    machine: Machine
    _options: dict[Candidate, list[Candidate]] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    @functools.cached_property
    def base(self) -> dict[str, Any]:
        """The options of the base."""
        return factors.base(self.lists, self.machine)

    @functools.cached_property
    def modes(self) -> list[Candidate]:
        """What the first stage compares."""
        return factors.modes(self.lists, self.machine)

    def options(self, pivot: Candidate) -> list[Candidate]:
        """A mode, and with one option changed."""
        if pivot not in self._options:
            self._options[pivot] = [pivot, *factors.options(pivot, self.lists, self.allow, self.machine)]
        return self._options[pivot]

    def given(self, candidate: Candidate) -> dict[str, Any]:
        """The options that are given to a candidate's run."""
        return factors.readable(candidate.given(self.base), self.machine)

    def candidates(self, stage: int, rates: Rates) -> list[Candidate]:
        """What a stage compares, given what is known; fewer than two: there is nothing to compare."""
        if stage == MODES:
            return self.modes
        pivot = self._pivot(rates)
        if pivot is None:
            return []
        if stage == OPTIONS:
            return self.options(pivot)
        single = self._takeable(_ranking(rates, OPTIONS, pivot))
        return [single[0], _combined(pivot, single)] if len(single) > 1 else []

    def next_trials(self, rates: Rates, budget: Budget) -> list[Trial]:
        """The runs of the next round, without those that were made; none: all is measured that helps and that fits."""
        begun = max((trial.stage for trial in rates), default=MODES)
        for stage in STAGES[begun:]:
            trials = self._next_of(stage, self.candidates(stage, rates), rates, budget)
            if trials:
                return trials
        return []

    def _next_of(self, stage: int, candidates: Sequence[Candidate], rates: Rates, budget: Budget) -> list[Trial]:
        first = _affordable(stage, candidates, rates, budget)
        is_alone = stage == OPTIONS and len(candidates) == 1  # nothing to compare, but a rate to tell
        if len(first) < 2 and not is_alone:
            return []
        if trials := _missing([Trial(stage, 1, each) for each in first], rates):
            return trials
        good = [each for each in first if rates[Trial(stage, 1, each)] is not None]
        second = _missing([Trial(stage, 2, each) for each in good], rates)
        if second:
            fitting = [second[:count] for count in range(len(second), 0, -1) if budget.affords(second[:count])]
            return fitting[0] if fitting and (len(fitting[0]) > 1 or len(second) == 1) else []
        reference = None if stage == MODES else candidates[0]
        ranking = _ranking(rates, stage, reference)
        if ranking is None:
            return []
        helped = worth_a_round(ranking, ranking.contenders if stage == MODES else list(ranking.standings))
        third = _missing([Trial(stage, 3, each) for each in dict.fromkeys([ranking.reference, *helped])], rates)
        # Of the modes a third round leaves as much time for the options.
        return third if helped and budget.affords(third, 0.5 if stage == MODES else 1.0) else []

    def answer(self, rates: Rates) -> Answer:
        """What is to be said, whatever was measured."""
        modes = _ranking(rates, MODES)
        pivot = self._pivot(rates)
        first = self.modes
        failed = tuple(dict.fromkeys(t.candidate for t in rates if not _good(rates, t.stage, t.candidate)))
        measured = {trial.candidate for trial in rates}
        if pivot is None:
            return Answer(None, None, first[0], None, None, (), failed, ())
        wanted = [*(first if len(first) > 1 else []), *self.options(pivot)]
        left_out = tuple(each for each in dict.fromkeys(wanted) if each not in measured)
        options, check = _ranking(rates, OPTIONS, pivot), None
        taken, single = pivot, self._takeable(options)
        if single:
            taken = single[0]
            combined = _combined(pivot, single)
            check = _ranking(rates, CHECK, taken)
            check = check if check and combined in check.standings else None
            taken = combined if check and check.standings[combined].verdict == FASTER else taken
        is_measured = bool(_good(rates, MODES, pivot) or _good(rates, OPTIONS, pivot))
        return Answer(
            taken if is_measured else None, modes, pivot, options, check, self._gains(options), failed, left_out
        )

    def _pivot(self, rates: Rates) -> Candidate | None:
        """The mode whose options are tried: the fastest, or the only one; None where none of several was measured."""
        if len(self.modes) == 1:
            return self.modes[0]
        ranking = _ranking(rates, MODES)
        return ranking.reference if ranking else None

    def _takeable(self, options: Ranking[Candidate] | None) -> list[Candidate]:
        """Of each option that may be taken the value to take, the fastest option first."""
        if options is None:
            return []
        may_be = [name for name, factor in FACTORS.items() if not factor.changes or name in self.allow]
        chosen = [each for name in may_be if (each := _of_option(options, name))]
        return sorted(chosen, key=lambda each: -options.standings[each].ratio.value)

    def _gains(self, options: Ranking[Candidate] | None) -> tuple[Candidate, ...]:
        if options is None:
            return ()
        names = [name for name, factor in FACTORS.items() if factor.changes and name not in self.allow]
        gains = [each for each in options.standings if each.factor in names]
        faster = [each for each in gains if options.standings[each].verdict == FASTER]
        return tuple(sorted(faster, key=lambda each: -options.standings[each].ratio.value))


def _of_option(options: Ranking[Candidate], name: str) -> Candidate | None:
    """The value of an option to take: the first that is shown faster than the pivot and not slower than its others."""
    faster = [
        each for each, standing in options.standings.items() if each.factor == name and standing.verdict == FASTER
    ]
    if len(faster) < 2:
        return faster[0] if faster else None
    best = max(faster, key=lambda each: options.standings[each].ratio.value)
    # Two values that are both faster than the pivot are told apart where their intervals against it do not meet.
    return next(each for each in faster if _meet(options, each, best))


def _meet(options: Ranking[Candidate], a: Candidate, b: Candidate) -> bool:
    ends = [options.standings[each].ratio.ends for each in (a, b)]
    return a == b or ends[0] is None or ends[1] is None or ends[0][1] >= ends[1][0]


def _combined(pivot: Candidate, single: Sequence[Candidate]) -> Candidate:
    changes = [(each.factor, each.value(each.factor)) for each in single]
    return Candidate((*pivot.changes, *sorted(changes, key=lambda change: list(FACTORS).index(change[0]))))


def _affordable(stage: int, candidates: Sequence[Candidate], rates: Rates, budget: Budget) -> list[Candidate]:
    """The first candidates, as many as find time for the fewest rounds; those with which a stage has begun stay."""
    begun = [each for each in candidates if Trial(stage, 1, each) in rates]
    if any(Trial(stage, 2, each) in rates for each in candidates):
        return begun
    taken: list[Candidate] = []
    seconds = 0.0
    least = 0 if rates else FEWEST  # nothing is known yet: a rough estimate alone stops nothing
    for each in candidates:
        trials = _missing([Trial(stage, number, each) for number in range(1, FEWEST + 1)], rates)
        seconds += sum(map(budget.seconds, trials))
        if seconds > budget.left_s and len(taken) >= least and each not in begun:
            break
        taken.append(each)
    return taken


def _missing(trials: Sequence[Trial], rates: Rates) -> list[Trial]:
    return [trial for trial in trials if trial not in rates]


def _good(rates: Rates, stage: int, candidate: Candidate) -> list[float]:
    trials = (Trial(stage, number, candidate) for number in range(1, MOST + 1))
    return [rate for trial in trials if (rate := rates.get(trial)) is not None]


def _ranking(rates: Rates, stage: int, reference: Candidate | None = None) -> Ranking[Candidate] | None:
    """Of a stage, against a reference or the fastest; None where nothing was measured, or the reference was not."""
    candidates = dict.fromkeys(trial.candidate for trial in rates if trial.stage == stage)
    good = {each: of for each in candidates if (of := _good(rates, stage, each))}
    if not good or (reference is not None and reference not in good):
        return None
    return rank(good, reference)
