"""Which relations hold in a view: the readings of its columns, series and baselines that explain most numbers."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.analysis.audit import candidates, groups, sums
from rnn_scaling.analysis.audit.candidates import products, same_rows
from rnn_scaling.analysis.audit.relations import MISTAKES, RELATIONS, SAME_WORK, SUM
from rnn_scaling.analysis.audit.scoring import EXPLICIT, LEAST, Reading, scored
from rnn_scaling.analysis.audit.tables import HEAD, View
from rnn_scaling.records import printed_number

_FEW = 2  # rows that a reading may miss without being of another baseline
_SAME_BASELINE = 6.0  # bits of a baseline that another column confirms
_SLOWED = 0.5  # a table does not list slowdowns alone as speedups
CLOSE = 4.0  # bits: a reading without a miss is preferred to one that is better by less


def readings(view: View) -> list[Reading]:
    """The believed readings of every target column, without those that a better one contradicts."""
    found: list[Reading] = []
    head = view.head(HEAD)
    by_target = candidates.of_all(head)
    clean = [
        [r for r in tried if r.rule and r.is_believed and not r.missed]
        for tried in by_target
    ]
    confirmed = [
        max(tried, key=lambda reading: reading.bits) for tried in clean if tried
    ]
    baselines = {(reading.grouping, reading.rule) for reading in confirmed}
    for tried in by_target:
        ranked = sorted(
            tried,
            key=lambda r: (
                -r.bits - _SAME_BASELINE * ((r.grouping, r.rule) in baselines)
            ),
        )
        found += _best([reading for reading in ranked if reading.is_believed])
    found = _without_repeats(found)
    if head is not view:
        found = _applied_to(view, found)
    return [*found, *sums.totals(view)]


def _best(believed: Sequence[Reading]) -> list[Reading]:
    """Of readings of one column, the best first, those that go together."""
    if not believed:
        return []
    best = _widest(believed)
    close = [
        reading
        for reading in believed
        if not reading.missed and reading.bits >= best.bits - CLOSE
    ]
    close = [reading for reading in close if not _is_part(reading, best)]
    kept = close[:1] if best.missed and close else _agreeing([best, *believed])
    # What the header states holds too, but for a fault.
    stated = [
        r for r in believed if not r.relation.is_generic and r.bits >= candidates.CLEAR
    ]
    if kept[0].relation.is_generic:
        kept += [reading for reading in stated if len(reading.missed) == 1][:1]
    return kept


def _widest(believed: Sequence[Reading]) -> Reading:
    """The best reading, or one with more rows of which it is a part; a row that prints 1 may begin a series."""
    best = believed[0]
    wider = [
        r
        for r in believed
        if len(r.instances) > len(best.instances) and _is_part(best, r)
    ]
    wider = [
        r
        for r in wider
        if not any(groups.is_one(i.terms[0].item, r.relation.shift) for i in r.missed)
    ]
    return next(iter(wider), best)


def _is_part(reading: Reading, whole: Reading) -> bool:
    """Whether all that a reading compares holds in another one, which compares more."""
    held = {instance.mark for instance in whole.instances if instance.holds}
    return all(instance.mark in held for instance in reading.instances)


def _without_repeats(found: Sequence[Reading]) -> list[Reading]:
    """Of generic readings that connect the same columns only the best, none where a stated one does.

    Of two columns that would be the same number, one with faults is another one ("efficiency vs ceiling").
    """
    kept: list[Reading] = []
    clean = {
        (r.relation.text, r.sources)
        for r in found
        if not r.missed and r.relation.name != SAME_WORK
    }
    for reading in sorted(
        found, key=lambda reading: (reading.relation.is_generic, -reading.bits)
    ):
        columns = {reading.target, *reading.sources}
        if reading.missed and (reading.relation.text, reading.sources) in clean:
            continue
        if not reading.relation.is_generic or not any(
            columns <= {r.target, *r.sources} for r in kept
        ):
            kept.append(reading)
    return kept


def _agreeing(ranked: Sequence[Reading]) -> list[Reading]:
    """The best reading, and those of other relations that miss no rows but its own."""
    best = ranked[0]
    missed = {instance.row for instance in best.missed}
    kept = [best]
    for reading in ranked[1:]:
        is_new = all(
            reading.relation.text != kept_reading.relation.text for kept_reading in kept
        )
        if (
            is_new
            and {instance.row for instance in reading.missed} <= missed
            and reading.bits >= 0.5 * best.bits
        ):
            kept.append(reading)
    return kept


def mistakes(view: View, believed: Sequence[Reading]) -> list[Reading]:
    """Relations that hold in a whole column and must not."""
    view = view.head(HEAD)
    right_targets = {reading.target for reading in believed if not reading.missed}
    found: list[Reading] = []
    for target in sorted(set(range(len(view.columns))) - right_targets):
        made = [
            reading
            for reading in candidates.stated(view, target, MISTAKES)
            if not reading.missed
        ]
        best = max(made, key=lambda reading: reading.bits, default=None)
        found += [best] if best and best.bits >= LEAST + CLOSE else []
    return found


def inverses(view: View, believed: Sequence[Reading]) -> Iterator[Reading]:
    """Speedups that are small in every row, as the ratio of two times: new / old instead of old / new."""
    for reading in believed:
        column = view.columns[reading.target]
        times = [
            view.columns[k]
            for k in reading.sources
            if view.columns[k].quantity == "seconds"
        ]
        is_ratio = (
            reading.relation.text == "target = a / b"
            and not reading.relation.shift[0]
            and len(times) == 2
        )
        is_clean = is_ratio and column.quantity == "speedup" and not reading.missed
        if is_clean and all(item.high < _SLOWED for item in column.items if item):
            relation = dataclasses.replace(reading.relation, name="inverse")
            yield dataclasses.replace(reading, relation=relation, bits=LEAST)


def other_baselines(view: View, believed: Sequence[Reading]) -> list[Reading]:
    """Readings that hold for another baseline than the row that the header names ("relative to ARCHER")."""
    view = view.head(HEAD)
    firsts = {
        line: printed_number.plain(texts[0]).lower()
        for line, texts in view.table.rows[: 2 * HEAD]
    }
    clean = [reading for reading in believed if reading.rule and not reading.missed]
    found = []
    for reading in clean:
        name, relation = view.columns[reading.target].name.lower(), reading.relation
        rows = [
            k
            for k, line in enumerate(view.lines)
            if _is_named(firsts.get(line, ""), name)
        ]
        is_other = _is_odd(view, reading, clean)
        if len(rows) == 1 and not is_other:
            baselines = dict.fromkeys(range(len(view.lines)), rows[0])
            named = products(view, reading.target, relation, reading.sources, baselines)
            is_other = _prints_one(view, reading, rows[0]) is False
            is_other |= sum(not instance.holds for instance in named) > max(
                _FEW, len(named) / 2
            )
        if is_other:
            found.append(
                dataclasses.replace(
                    reading,
                    relation=dataclasses.replace(relation, name="other baseline"),
                )
            )
    return found


def _prints_one(view: View, reading: Reading, row: int) -> bool | None:
    """Whether the target of a row is printed as 1, None without a number."""
    item = view.columns[reading.target].items[row]
    return bool(groups.is_one(item, reading.relation.shift)) if item else None


def _is_odd(view: View, reading: Reading, clean: Sequence[Reading]) -> bool:
    """Whether the row that prints 1 is not the baseline, and another column prints 1 at the baseline."""
    alike = [
        candidate
        for candidate in clean
        if (candidate.grouping, candidate.rule) == ("all", "fewest devices")
    ]
    compared = {instance.row for instance in reading.instances}
    is_one = [_prints_one(view, reading, row) for row in range(len(view.lines))]
    baselines = [
        row
        for row, prints_one in enumerate(is_one)
        if prints_one is not None and row not in compared
    ]
    is_moved = (
        len(baselines) == 1
        and not is_one[baselines[0]]
        and any(is_one)
        and reading in alike
    )
    return is_moved and any(
        _prints_one(view, candidate, baselines[0]) for candidate in alike
    )


def _is_named(label: str, header: str) -> bool:
    """Whether a header has all words of another text."""
    words = re.findall(r"[a-z0-9]+", label.lower().partition("(")[0])
    is_name = len(words) > 0 and len(label) > 1 and not label.isdigit()
    return is_name and not set(words) - set(re.findall(r"[a-z0-9]+", header.lower()))


def contradictions(view: View, believed: Sequence[Reading]) -> list[Reading]:
    """Columns that follow from confirmed ones by their header, and from nothing by their numbers."""
    view = view.head(HEAD)
    confirmed = {reading.target for reading in believed} | set(view.of("devices"))
    found: list[Reading] = []
    for target in sorted({*view.of("efficiency"), *view.of("speedup")} - confirmed):
        name = view.columns[target].name
        is_bound = any(
            _is_named(view.columns[k].name, name) for k in confirmed
        )  # "speedup_low"
        stated = () if is_bound else candidates.stated(view, target, RELATIONS)
        due = [
            r
            for r in stated
            if r.relation.bits >= EXPLICIT
            and set(r.sources) <= confirmed
            and not r.suspects
        ]
        found += [
            r
            for r in due
            if len(r.instances) > 2
            and len(r.missed) > 0.6 * len(r.instances)
            and _has_its_baseline(view, r)
        ][:1]
    return found


def _has_its_baseline(view: View, reading: Reading) -> bool:
    """Return whether the rows that others are compared with print 1.

    If they do not, the numbers may be relative to rows outside of the table.
    """
    if not reading.rule:
        return True
    compared = {instance.row for instance in reading.instances}
    printed = [
        _prints_one(view, reading, row)
        for row in range(len(view.lines))
        if row not in compared
    ]
    return any(printed) and all(one is not False for one in printed)


def _broken(view: View, reading: Reading) -> tuple[set[int], Mapping[int, int]]:
    """Rows of a long view that break a reading in the grouping that fits best, and the baselines of all rows."""
    relation, columns = reading.relation, [view.columns[k] for k in reading.sources]
    target, of_rows = view.columns[reading.target], same_rows(view)
    tolerance = max((instance.tolerance for instance in reading.instances), default=0.0)
    if relation.text == SUM:
        return groups.broken_sums(target, columns, tolerance), of_rows
    if relation.is_sum:
        instances = sums.of_rows(
            view, reading.target, relation, reading.sources, range(len(view.lines))
        )
        return {
            instance.row
            for instance in instances
            if not instance.holds_within(tolerance)
        }, of_rows
    named, tried = (
        {relation.target: target, **dict(zip(relation.sources, columns))},
        [of_rows],
    )
    if reading.rule:
        groupings = groups.groupings(view)
        ordered = sorted(groupings, key=lambda name: name != reading.grouping)
        by_rule = [
            groups.baselines(view, target, columns, groupings[name], relation.shift)
            for name in ordered
        ]
        tried = [found[reading.rule] for found in by_rule if reading.rule in found]
    broken = [
        (groups.broken_rows(relation, named, rows, tolerance), rows) for rows in tried
    ]
    return min(broken, key=lambda pair: len(pair[0]), default=(set(), {}))


def _applied_to(view: View, found: Sequence[Reading]) -> list[Reading]:
    """Readings of a sample, on the sample and on the rows of a long view that break one."""
    rows = set(range(HEAD))
    kept: list[tuple[Reading, Mapping[int, int]]] = []
    for reading in found:
        broken, of_rows = _broken(view, reading)
        if len(broken) <= max(HEAD, groups.MOST_BROKEN * len(of_rows)):
            rows |= broken | (
                groups.siblings(broken, of_rows) if reading.rule else set()
            )
            kept.append((reading, of_rows))
    applied = []
    for reading, compared in kept:
        relation, sources = reading.relation, reading.sources
        if relation.is_sum:
            instances = sums.of_rows(
                view, reading.target, relation, sources, sorted(rows)
            )
        else:
            of_chosen = {row: compared[row] for row in sorted(rows) if row in compared}
            instances = products(view, reading.target, relation, sources, of_chosen)
        again = dataclasses.replace(reading, instances=instances, bits=0.0)
        applied.append(
            dataclasses.replace(
                scored(view.columns[reading.target], again), compared=len(compared)
            )
        )
    return [reading for reading in applied if reading.is_believed]
