"""What recommend found -> text, Markdown, JSON: alternatives, a sentence to read aloud, the command to copy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.recommendation import factors
from rnn_scaling.analysis.recommendation.factors import FACTORS, Candidate
from rnn_scaling.analysis.recommendation.ranking import EQUAL, FASTER, OPEN, REFERENCE, SLOWER, Ranking, Standing
from rnn_scaling.analysis.recommendation.search import FEWEST, Answer, Search
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.markdown import markdown_table
from rnn_scaling.reports.numbers import has_ends, plus_minus
from rnn_scaling.reports.series_sentence import load_sentence
from rnn_scaling.settings import scale

SCHEMA = "rnn_scaling.recommend/1"
MOST_LISTED = 3  # names in a sentence
TOO_NOISY = 0.5  # a possible difference that is no answer


class Told(NamedTuple):
    """An answer with what is needed to tell it.

    search: what was asked; answer: to it; records: of all runs; command: that trains so; empty: nothing is taken.
    """

    search: Search
    answer: Answer
    records: Sequence[RunRecord]
    command: str

    @property
    def unit(self) -> str:
        return self.records[0].unit if self.records else "items"


def text(told: Told) -> str:
    """For the terminal, and, below a title, for a file."""
    parts = [_table(told, stage, ranking) for stage, ranking in _stages(told)]
    parts.append(" ".join(filter(None, [sentence(told), *details(told)])) + "\n")
    parts += [f"    {told.command}\n"] if told.command else []
    return "\n".join(parts)


def markdown(told: Told) -> str:
    """The file."""
    return f"# Recommendation\n\n{text(told)}"


def _stages(told: Told) -> list[tuple[str, Ranking[Candidate]]]:
    answer = told.answer
    of = factors.in_words(answer.pivot)
    named = {"Modes": answer.modes, f"Options of {of}": answer.options, "Check of the combination": answer.check}
    return [(title, ranking) for title, ranking in named.items() if ranking]


def _table(told: Told, title: str, ranking: Ranking[Candidate]) -> str:
    against = "the fastest" if ranking is told.answer.modes else "the first"
    effects = [_effect(told, each) for each in ranking.standings]
    head = ["Alternative", "Runs", f"{_title(told.unit)}/s", f"% of {against}", "Verdict"]
    rows = [[_name(told, each), *_cells(told, each, standing)] for each, standing in ranking.standings.items()]
    if any(effects):
        head, rows = [*head, "What it changes"], [[*row, effect] for row, effect in zip(rows, effects)]
    kinds = dict.fromkeys(each.rate.kind for each in ranking.standings.values() if each.rate.ends)
    together = f"; %: 95 % for all {len(rows)} together" if kinds and len(rows) > 1 else ""
    note = "".join(f"\n± {told.unit}/s: {kind}{together}.\n" for kind in list(kinds)[:1])
    return f"## {title}\n\n{markdown_table(head, rows)}{note}"


def _cells(told: Told, candidate: Candidate, standing: Standing) -> list[str]:
    is_taken = candidate == told.answer.taken
    verdict = {REFERENCE: "", FASTER: "faster", SLOWER: "slower", OPEN: _open(standing)}[standing.verdict]
    verdict = ", ".join(filter(None, [verdict, "taken" if is_taken else ""]))
    share = "100" if standing.verdict == REFERENCE else plus_minus(standing.ratio.scaled(100), 1)
    return [str(standing.rate.processes[0]), plus_minus(standing.rate, 0), share, verdict]


def _open(standing: Standing) -> str:
    if standing.within is None:
        return "one run cannot tell"
    return "as fast" if standing.within <= EQUAL else "not told apart"


def _effect(told: Told, candidate: Candidate) -> str:
    factor = FACTORS.get(candidate.factor)
    return factors.effect(factor, candidate, _pivot_config(told)) if factor else ""


def _name(told: Told, candidate: Candidate) -> str:
    if candidate.factor:
        return factors.change_in_words(candidate, _pivot_config(told), told.search.machine)
    return factors.in_words(candidate)


def _pivot_config(told: Told) -> Any:
    return factors.resolved(told.search.given(told.answer.pivot), told.search.machine)


def sentence(told: Told) -> str:
    """The answer, to be read aloud."""
    answer = told.answer
    if answer.taken is None:
        return "No run measured anything, so nothing can be recommended."
    config = factors.resolved(told.search.given(answer.taken), told.search.machine).flat()
    where = scale.in_words(scale.num_workers(config), config["num_devices"])
    rate = _rate(answer)
    lead = f"On {where} take {factors.in_words(answer.taken)}"
    lead += f": {plus_minus(rate, 0)} {told.unit}/s." if rate else "."
    return " ".join(filter(None, [lead, _ties(answer)]))


def _rate(answer: Answer) -> Interval | None:
    """Of the configuration that is taken, from the stage that ran it most often, of such the last."""
    rankings = [ranking for ranking in (answer.check, answer.options, answer.modes) if ranking]
    taken = answer.taken or answer.pivot
    rates = [ranking.standings[taken].rate for ranking in rankings if taken in ranking.standings]
    return max(rates, key=lambda rate: rate.processes[0], default=None)


def _ties(answer: Answer) -> str:
    if answer.modes is None:
        return ""
    standings = answer.modes.standings
    tied = [each for each in answer.modes.contenders if each != answer.modes.reference]
    if not tied:
        return ""
    names = _listed([factors.in_words(each) for each in tied])
    known = [standings[each].within for each in tied]
    if any(each is None for each in known):
        return f"One round cannot tell it from {names}; take either."
    within = max(each for each in known if each is not None)
    if within <= EQUAL:
        return f"{names} {'is' if len(tied) == 1 else 'are'} equally fast (within {_percent(within)}); take either."
    if within >= TOO_NOISY:
        return f"It cannot be told from {names}: the runs of each differ too much; take either, or end other processes."
    return f"It cannot be told from {names}: they may differ by up to {_percent(within)}; take either."


def details(told: Told) -> list[str]:
    """What each alternative costs or gains, a sentence for each matter."""
    answer = told.answer
    lines = [_slower(answer), _taken_options(told), _open_options(told), _gains(told)]
    if answer.failed:
        lines.append(f"Failed: {_listed([_name(told, each) for each in answer.failed])}.")
    if answer.left_out and answer.taken:
        lines.append(
            f"Not measured for want of time: {_listed([_name(told, each) for each in answer.left_out])}; the same "
            "command with more --minutes goes on."
        )
    good = [record for record in told.records if record.status == "ok"]
    return [line for line in [*lines, load_sentence(good)] if line]


def _slower(answer: Answer) -> str:
    if answer.modes is None:
        return ""
    slower = {each: of for each, of in answer.modes.standings.items() if of.verdict == SLOWER}
    parts = [f"{factors.in_words(each)} reaches {_share(of.ratio)}" for each, of in slower.items()]
    return f"{'; '.join(parts)} of its speed." if parts else ""


def _taken_options(told: Told) -> str:
    answer = told.answer
    if answer.options is None or answer.taken in (None, answer.pivot):
        return ""
    taken = dict(answer.taken.changes if answer.taken else ())
    of = [
        each for each in answer.options.standings if each.factor and taken.get(each.factor) == each.value(each.factor)
    ]
    gains = [f"{_name(told, each)} gains {_gain(answer.options.standings[each].ratio)}" for each in of]
    if answer.check is None:
        return f"{'; '.join(gains)}."
    combined = next(each for each in answer.check.standings if each != answer.check.reference)
    standing = answer.check.standings[combined]
    if standing.verdict == FASTER:
        return f"{'; '.join(gains)}; together {_gain(standing.ratio)} more than the first alone."
    return f"{'; '.join(gains)}. That more options with it gain anything is not shown."


def _open_options(told: Told) -> str:
    """How large a gain of the options that may be taken could still hide."""
    options, allow = told.answer.options, told.search.allow
    if options is None:
        return ""
    if options.undecided and all(options.standings[each].within is None for each in options.undecided):
        return "One round of the options cannot tell."
    own = [each for each in options.undecided if not FACTORS[each.factor].changes or each.factor in allow]
    tops = [standing.ratio.ends[1] - 1 for each in own if (standing := options.standings[each]).ratio.ends]
    if not tops:
        return ""
    names = _listed([_name(told, each) for each in own])
    if max(tops) >= TOO_NOISY:
        return f"Whether there is a gain of {names} cannot be told: the runs of each differ too much."
    return f"No gain is seen of {names} (it would be below {_percent(max(tops))})."


def _gains(told: Told) -> str:
    options = told.answer.options
    if options is None or not told.answer.gains:
        return ""
    best: dict[str, Candidate] = {}
    for each in told.answer.gains:
        best.setdefault(each.factor, each)
    parts = [
        f"{_name(told, each)} gains {_gain(options.standings[each].ratio)} ({_effect(told, each)})"
        for each in best.values()
    ]
    allow = ",".join(FACTORS[name].allow for name in best)
    return f"Not taken, since they change training: {'; '.join(parts)}. --allow={allow} takes what is faster."


def _gain(ratio: Interval) -> str:
    """ "18 ± 4 %", of a ratio above 1."""
    if ratio.ends is None:
        return _percent(ratio.value - 1)
    low, high = (100 * (end - 1) for end in ratio.ends)
    value = 100 * (ratio.value - 1)
    if has_ends(ratio):
        return f"{value:.0f} % ({low:.0f} to {high:.0f} %)"
    return f"{value:.0f} ± {max(high - value, value - low):.0f} %"


def _share(ratio: Interval) -> str:
    return f"{plus_minus(ratio.scaled(100), 0)} %"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0095 else f"{100 * share:.1f} %"


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - MOST_LISTED} more"] if len(names) > MOST_LISTED else []
    *others, last = [*names[:MOST_LISTED], *more]
    return f"{', '.join(others)} and {last}" if others else last


def _title(unit: str) -> str:
    return unit[:1].upper() + unit[1:]


def to_json(told: Told) -> str:
    """Everything, for a program; rates in items/s, shares as ratios."""
    answer, search = told.answer, told.search
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "sentence": sentence(told),
        "details": details(told),
        "command": told.command or None,
        "unit": told.unit,
        "taken": None if answer.taken is None else search.given(answer.taken),
        "rate": _interval(_rate(answer)),
        "stages": [
            {
                "title": title,
                "reference": factors.in_words(ranking.reference),
                "alternatives": [_data(told, each, standing) for each, standing in ranking.standings.items()],
            }
            for title, ranking in _stages(told)
        ],
        "gains_not_taken": [_name(told, each) for each in answer.gains],
        "failed": [_name(told, each) for each in answer.failed],
        "left_out": [_name(told, each) for each in answer.left_out],
        "rounds": {"fewest": FEWEST},
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _data(told: Told, candidate: Candidate, standing: Standing) -> dict[str, Any]:
    return {
        "name": _name(told, candidate),
        "changes": dict(candidate.changes),
        "runs": standing.rate.processes[0],
        "rate": _interval(standing.rate),
        "of_reference": _interval(standing.ratio),
        "verdict": standing.verdict,
        "changes_training": _effect(told, candidate) or None,
    }


def _interval(value: Interval | None) -> dict[str, float | None] | None:
    return None if value is None else {"value": value.value, "low": value.low, "high": value.high}


RENDER = {"text": text, "markdown": markdown, "json": to_json}
