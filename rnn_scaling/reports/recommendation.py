"""What recommend found -> text, Markdown, JSON: alternatives, a sentence to read aloud, the command to copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.recommendation import factors
from rnn_scaling.analysis.recommendation.factors import FACTORS, Candidate
from rnn_scaling.analysis.recommendation.ranking import EQUAL, FASTER, OPEN, REFERENCE, SLOWER, Ranking, Standing
from rnn_scaling.analysis.recommendation.search import FEWEST, Answer, Search
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.numbers import has_ends, plus_minus
from rnn_scaling.reports.series_sentence import load_sentence
from rnn_scaling.settings import scale

SCHEMA = "rnn_scaling.recommend/1"
MOST_LISTED = 3  # names in a sentence
TOO_NOISY = 0.5  # a possible difference that is no answer


class Advice(NamedTuple):
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


def text(advice: Advice) -> str:
    """For the terminal, and, below a title, for a file."""
    parts = [_table(advice, stage, ranking) for stage, ranking in _stages(advice)]
    parts.append(" ".join(filter(None, [sentence(advice), *details(advice)])) + "\n")
    parts += [f"    {advice.command}\n"] if advice.command else []
    return "\n".join(parts)


def markdown(advice: Advice) -> str:
    """The file."""
    return f"# Recommendation\n\n{text(advice)}"


def _stages(advice: Advice) -> list[tuple[str, Ranking[Candidate]]]:
    answer = advice.answer
    of = factors.in_words(answer.pivot)
    named = {"Modes": answer.modes, f"Options of {of}": answer.options, "Check of the combination": answer.check}
    return [(title, ranking) for title, ranking in named.items() if ranking]


def _table(advice: Advice, title: str, ranking: Ranking[Candidate]) -> str:
    against = "the fastest" if ranking is advice.answer.modes else "the first"
    effects = [_effect(advice, each) for each in ranking.standings]
    head = ["Alternative", "Runs", f"{_title(advice.unit)}/s", f"% of {against}", "Verdict"]
    rows = [[_name(advice, each), *_cells(advice, each, standing)] for each, standing in ranking.standings.items()]
    if any(effects):
        head, rows = [*head, "What it changes"], [[*row, effect] for row, effect in zip(rows, effects)]
    kinds = dict.fromkeys(each.rate.kind for each in ranking.standings.values() if each.rate.ends)
    together = f"; %: 95 % for all {len(rows)} together" if kinds and len(rows) > 1 else ""
    note = "".join(f"\n± {advice.unit}/s: {kind}{together}.\n" for kind in list(kinds)[:1])
    return f"## {title}\n\n{markdown_table(head, rows)}{note}"


def _cells(advice: Advice, candidate: Candidate, standing: Standing) -> list[str]:
    is_taken = candidate == advice.answer.taken
    verdict = {REFERENCE: "", FASTER: "faster", SLOWER: "slower", OPEN: _open(standing)}[standing.verdict]
    verdict = ", ".join(filter(None, [verdict, "taken" if is_taken else ""]))
    share = "100" if standing.verdict == REFERENCE else plus_minus(standing.ratio.scaled(100), 1)
    return [str(standing.rate.processes[0]), plus_minus(standing.rate, 0), share, verdict]


def _open(standing: Standing) -> str:
    if standing.within is None:
        return "one run cannot tell"
    return "as fast" if standing.within <= EQUAL else "not told apart"


def _effect(advice: Advice, candidate: Candidate) -> str:
    factor = FACTORS.get(candidate.factor)
    return factors.effect(factor, candidate, _pivot_config(advice)) if factor else ""


def _name(advice: Advice, candidate: Candidate) -> str:
    if candidate.factor:
        return factors.change_in_words(candidate, _pivot_config(advice), advice.search.machine)
    return factors.in_words(candidate)


def _pivot_config(advice: Advice) -> Any:
    return factors.resolved(advice.search.given(advice.answer.pivot), advice.search.machine)


def sentence(advice: Advice) -> str:
    """The answer, to be read aloud."""
    answer = advice.answer
    if answer.taken is None:
        return "No run measured anything, so nothing can be recommended."
    config = factors.resolved(advice.search.given(answer.taken), advice.search.machine).flat()
    where = scale.in_words(scale.num_workers(config), config["num_devices"])
    rate = _rate(answer)
    lead = f"On {where} take {factors.in_words(answer.taken)}"
    lead += f": {plus_minus(rate, 0)} {advice.unit}/s." if rate else "."
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


def details(advice: Advice) -> list[str]:
    """What each alternative costs or gains, a sentence for each matter."""
    answer = advice.answer
    lines = [_slower(answer), _taken_options(advice), _open_options(advice), _gains(advice)]
    if answer.failed:
        lines.append(f"Failed: {_listed([_name(advice, each) for each in answer.failed])}.")
    if answer.left_out and answer.taken:
        lines.append(
            f"Not measured for want of time: {_listed([_name(advice, each) for each in answer.left_out])}; the same "
            "command with more --minutes goes on."
        )
    good = [record for record in advice.records if record.status == "ok"]
    return [line for line in [*lines, load_sentence(good)] if line]


def _slower(answer: Answer) -> str:
    if answer.modes is None:
        return ""
    slower = {each: of for each, of in answer.modes.standings.items() if of.verdict == SLOWER}
    parts = [f"{factors.in_words(each)} reaches {_share(of.ratio)}" for each, of in slower.items()]
    return f"{'; '.join(parts)} of its speed." if parts else ""


def _taken_options(advice: Advice) -> str:
    answer = advice.answer
    if answer.options is None or answer.taken in (None, answer.pivot):
        return ""
    taken = dict(answer.taken.changes if answer.taken else ())
    of = [
        each for each in answer.options.standings if each.factor and taken.get(each.factor) == each.value(each.factor)
    ]
    gains = [f"{_name(advice, each)} gains {_gain(answer.options.standings[each].ratio)}" for each in of]
    if answer.check is None:
        return f"{'; '.join(gains)}."
    combined = next(each for each in answer.check.standings if each != answer.check.reference)
    standing = answer.check.standings[combined]
    if standing.verdict == FASTER:
        return f"{'; '.join(gains)}; together {_gain(standing.ratio)} more than the first alone."
    return f"{'; '.join(gains)}. That more options with it gain anything is not shown."


def _open_options(advice: Advice) -> str:
    """How large a gain of the options that may be taken could still hide."""
    options, allow = advice.answer.options, advice.search.allow
    if options is None:
        return ""
    if options.undecided and all(options.standings[each].within is None for each in options.undecided):
        return "One round of the options cannot tell."
    own = [each for each in options.undecided if not FACTORS[each.factor].changes or each.factor in allow]
    tops = [standing.ratio.ends[1] - 1 for each in own if (standing := options.standings[each]).ratio.ends]
    if not tops:
        return ""
    names = _listed([_name(advice, each) for each in own])
    if max(tops) >= TOO_NOISY:
        return f"Whether there is a gain of {names} cannot be told: the runs of each differ too much."
    return f"No gain is seen of {names} (it would be below {_percent(max(tops))})."


def _gains(advice: Advice) -> str:
    options = advice.answer.options
    if options is None or not advice.answer.gains:
        return ""
    best: dict[str, Candidate] = {}
    for each in advice.answer.gains:
        best.setdefault(each.factor, each)
    parts = [
        f"{_name(advice, each)} gains {_gain(options.standings[each].ratio)} ({_effect(advice, each)})"
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


def to_json(advice: Advice) -> str:
    """Everything, for a program; rates in items/s, shares as ratios."""
    answer, search = advice.answer, advice.search
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "sentence": sentence(advice),
        "details": details(advice),
        "command": advice.command or None,
        "unit": advice.unit,
        "taken": None if answer.taken is None else search.given(answer.taken),
        "rate": _interval(_rate(answer)),
        "stages": [
            {
                "title": title,
                "reference": factors.in_words(ranking.reference),
                "alternatives": [_data(advice, each, standing) for each, standing in ranking.standings.items()],
            }
            for title, ranking in _stages(advice)
        ],
        "gains_not_taken": [_name(advice, each) for each in answer.gains],
        "failed": [_name(advice, each) for each in answer.failed],
        "left_out": [_name(advice, each) for each in answer.left_out],
        "rounds": {"fewest": FEWEST},
    }
    return input_files.json_text(content)


def _data(advice: Advice, candidate: Candidate, standing: Standing) -> dict[str, Any]:
    return {
        "name": _name(advice, candidate),
        "changes": dict(candidate.changes),
        "runs": standing.rate.processes[0],
        "rate": _interval(standing.rate),
        "of_reference": _interval(standing.ratio),
        "verdict": standing.verdict,
        "changes_training": _effect(advice, candidate) or None,
    }


def _interval(value: Interval | None) -> dict[str, float | None] | None:
    return None if value is None else {"value": value.value, "low": value.low, "high": value.high}


RENDER = {"text": text, "markdown": markdown, "json": to_json}
