"""Check the sentences of reports on random folders with an oracle that reads the tables.

No sentence may claim more than the tables show.
"""

import collections
import math
import random
import re
import statistics

from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.reports import conclusions, headline, table
from rnn_scaling.reports.series_statements import format_series
from rnn_scaling.reports.wording import write_sentences
from tests.support.records import change_record
from tests.support.scaling_runs import run, summarise_records
from tests.support.views import csv_lines

MODES = ("independent", "parameter_server", "replicated", "mirrored")
OF_WORKERS = (
    "distributed_independent",
    "collective_all_reduce",
    "async_parameter_server",
)
ONE_MODEL = (*MODES[1:], *OF_WORKERS[1:])
DEVICES = "(?:devices?|workers of one device each)"
NUMBER = r"-?[\d,]+(?:\.\d+)?"
WITH_INTERVAL = re.compile(rf"{NUMBER} ± {NUMBER}|{NUMBER} \[{NUMBER}, {NUMBER}\]")


def folder(random_):
    """Return runs of one to four series on one to three numbers of devices.

    They have repeats, ties, failures and missing baselines.
    """
    choice = random_.choice([MODES, MODES, OF_WORKERS, (*MODES, *OF_WORKERS)])
    modes = random_.sample(choice, random_.randint(1, min(4, len(choice))))
    encoders = random_.choice([("cudnn_lstm",), ("cudnn_lstm", "dynamic_rnn")])
    scatter, tie = random_.choice([0.0005, 0.01, 0.1]), random_.random() < 0.3
    totals = random_.choice([(0,), (0,), (64,), (0, 64)])
    most_repeats, lm, disturbed = (
        random_.randint(1, 5),
        random_.random() < 0.15,
        random_.random() < 0.4,
    )
    runs = []
    for mode in modes:
        for encoder in encoders:
            for total in totals:
                base = 1000.0 if tie else random_.uniform(500, 2000)
                for count in (1, 2, 4)[: random_.randint(1, 3)]:
                    if random_.random() < 0.12:
                        continue
                    for _ in range(random_.randint(1, most_repeats)):
                        loss = (
                            0.0
                            if tie
                            else random_.uniform(-0.1, 0.5) * math.log2(count)
                        )
                        rate = (
                            base
                            * count
                            * max(0.1, 1 - loss)
                            * math.exp(random_.gauss(0, scatter))
                        )
                        status = "failed" if random_.random() < 0.05 else "ok"
                        names = {
                            "variable_update": mode,
                            "encoder_type": encoder,
                            "global_batch_size": total,
                        }
                        workers = {"num_workers": count} if mode in OF_WORKERS else {}
                        made = run(
                            1 if workers else count,
                            rate,
                            status,
                            seconds=20_000 / rate,
                            **names,
                            **workers,
                        )
                        made = add_load(made, count, disturbed, random_)
                        made = (
                            add_workers(made, count, disturbed, random_)
                            if workers
                            else made
                        )
                        if lm:
                            config = {**made.config, "model": "lm"}
                            made = change_record(made, unit="tokens", config=config)
                        runs.append(made)
    return runs


def add_load(made, count, disturbed, random_):
    """Return the run on a machine of two cores, sometimes beside other load.

    Sometimes it is a different machine.
    """
    if not disturbed:
        return made
    load = {
        "others": random_.choice([0.0, 0.04, 0.06, 0.58]),
        "steal": 0.0,
        "seconds": 9.0,
    }
    own = min(2, made.config["num_devices"])  # one core per worker, at most two
    resolved = {"cpu_affinity": [0, 1][:own], "oversubscribed": count > 2}
    cpu = "B" if random_.random() < 0.1 else "A"
    return change_record(
        made, resolved=resolved, environment={"cpu": cpu, "cpu_cores": 2, "load": load}
    )


def add_workers(made, count, disturbed, random_):
    """Return the run with several workers.

    Some of them are disturbed, lost, or train with old gradients.
    """
    loads = [
        random_.choice([None, 0.03, 0.07]) if disturbed else None for _ in range(count)
    ]
    own = [
        {"rank": k, "host": "a", "cpu_affinity": [k % 2], "load_others": load}
        for k, load in enumerate(loads)
    ]
    told = {"ranks": own}
    if made.config["variable_update"] == "async_parameter_server":
        told["staleness"] = {"0": 5, str(count - 1): 5}
        told["lost"] = (
            [{"rank": count, "error": "killed"}] if random_.random() < 0.3 else []
        )
    return change_record(made, workers=told)


def list_lines(made):
    """Return the CSV's lines as numbers, by series and devices."""
    lines = {}
    for line in csv_lines(made):
        numbers = {}
        for name in ("rate", "efficiency"):
            column = (
                name
                if name == "efficiency"
                else next(c for c in line if c.endswith("_per_second"))
            )
            ends = [
                float(line[f"{column}{end}"] or "nan") for end in ("", "_low", "_high")
            ]
            numbers[name] = ends
        lines[line["series"], int(line["num_devices"])] = {
            **numbers,
            "runs": int(line["runs_ok"]),
        }
    return lines


def is_above(first, second, pools, series):
    """Decide by the ends of both rates, at 5 % over all pairs of series.

    `pools` has, for each rate, whose scatter it shares and the degrees of freedom of
    that scatter. A rate without ends is above nothing.
    """
    (first_pool, first_degrees), (second_pool, second_degrees) = pools
    if not first_degrees or not second_degrees:
        return False
    first_error = math.log(first[2] / first[1]) / 2 / t_quantile(0.975, first_degrees)
    second_error = (
        math.log(second[2] / second[1]) / 2 / t_quantile(0.975, second_degrees)
    )
    error = math.hypot(first_error, second_error)
    degrees = first_degrees
    if first_pool != second_pool:  # Welch and Satterthwaite
        parts = first_error**4 / first_degrees + second_error**4 / second_degrees
        degrees = error**4 / parts
    level = 0.05 / (series * (series - 1) / 2)
    distance = math.log(first[0] / second[0])
    return distance > t_quantile(1 - level / 2, degrees) * error


def core_shares(made):
    """Return (share, share of a core) that others used of the process and each rank."""
    load = made.environment.load
    cores = len(made.resolved.cpu_affinity or ()) or 1
    shares = [(load.others, load.others * cores)] if load else [(0.0, 0.0)]
    for rank in made.workers.workers if made.workers else ():
        shares.append((rank.load_others or 0.0, rank.load_others or 0.0))
    return shares


def is_busy(made):
    return max(of_core for _, of_core in core_shares(made)) > 0.05


def select_counted_runs(row):
    """Return the quiet runs if there are two, and a third of all; else all good ones."""
    quiet = [made for made in row.good_runs if not is_busy(made)]
    return quiet if len(quiet) >= max(2, len(row.good_runs) / 3) else row.good_runs


def find_taken_share(row, best):
    """Return the share that only this row's load may have taken, half of a core at most."""
    loads = []
    for side in (row, best):
        loads.append(
            [
                max(of for _, of in core_shares(made))
                for made in select_counted_runs(side)
            ]
        )
    errors = [statistics.variance(side) / len(side) for side in loads if len(side) > 1]
    excess = statistics.mean(loads[0]) - statistics.mean(loads[1])
    if excess <= max(0.05, 2 * math.sqrt(sum(errors))):
        return 0.0
    shares = []
    for made in select_counted_runs(row):
        busy = [pair for pair in core_shares(made) if pair[1] > 0.05]
        shares.append(max([max(share, min(0.5, of)) for share, of in busy], default=0))
    return sum(shares) / len(shares)


def judge_lead(made, lines):
    """Check the sentence on the fastest series against the numbers of the table."""
    kind = "strong" if made.series[0].is_strong_scaling else "weak"
    titles = [each.title for each in made.series]
    modes = {
        each.title: each.rows[0].options["variable_update"] for each in made.series
    }
    stated = {each.kind: each for each in conclusions.state_answer(made)}
    fastest, is_one_model = stated.get("fastest"), "ranked-one-model" in stated
    match = fastest or stated.get("fastest-unclear")
    if not match:
        return ""
    count = int(match.values["devices"].split()[0])
    several = [
        title
        for title in titles
        if any(lines.get((title, n), {}).get("rate", [0.0])[0] > 0 for n in (2, 4))
    ]
    rivals = (
        [title for title in several if modes[title] in ONE_MODEL]
        if is_one_model
        else several
    )
    if not several:  # none was measured on several devices
        rivals = [
            title
            for title in titles
            if lines.get((title, 1), {}).get("rate", [0.0])[0] > 0
        ]
    assert (count > 1) == bool(several) and is_one_model == (
        0 < sum(modes[title] in ONE_MODEL for title in several) < len(several)
    ), kind
    rates = {title: lines[title, count]["rate"] for title in rivals}
    best = max(rates, key=lambda title: rates[title][0])
    all_rows = {
        each.title: each.row_on(count) for each in made.series if each.row_on(count)
    }
    rows = {title: all_rows[title] for title in rates}
    pool_of = {}
    degrees = collections.Counter()
    for title, row in all_rows.items():
        pool_of[title] = (row.num_workers, any(map(is_busy, select_counted_runs(row))))
        degrees[pool_of[title]] += len(select_counted_runs(row)) - 1
    pools = {title: (pool, degrees[pool]) for title, pool in pool_of.items()}
    lost = {
        title
        for title, row in rows.items()
        if any(run.workers and run.workers.lost for run in row.good_runs)
    }
    raised = {}
    for title in rates:
        left = 1 - find_taken_share(rows[title], rows[best])
        raised[title] = [rate / left for rate in rates[title]]
    tied = [
        t
        for t in rates
        if t == best
        or t in lost
        or not is_above(rates[best], raised[t], (pools[best], pools[t]), len(rates))
    ]
    if fastest:
        assert fastest.subject == best and tied == [best]
    else:
        slowed = (
            stated["slowed-by-load"].values["slowed"]
            if "slowed-by-load" in stated
            else []
        )
        named = [each["name"] for each in (*match.values["tied"], *slowed)]
        assert len(tied) > 1 and sorted(named) == sorted(tied)
    return "fastest" if fastest else "untold"


def test_no_sentence_says_more_than_the_tables():
    random_, seen = random.Random(7), []
    for _ in range(90):
        made = summarise_records(folder(random_))
        if not made.measured:
            continue
        # test_option_effects recomputes the numbers of the headline.
        details = [
            statement
            for statement in conclusions.state_answer(made)
            if statement.kind not in headline.KINDS
        ]
        lead = write_sentences(details)
        lines = list_lines(made)
        text = table.format_text(made)
        everything = [
            lead,
            conclusions.format_overview(made),
            *(format_series(each) for each in made.series),
        ]
        for said in everything:
            assert "can be judged" not in said.replace("cannot be judged", "")
            assert " only series" not in said
            assert not re.search(
                r"\bnan\b|\binf\b|\bNone\b(?! of)|  |, ,|\.\.", said
            ), said
            assert said == "" or said.endswith("."), said
            for number in WITH_INTERVAL.findall(said):
                assert number in text or number in answer_of_parts(made), (number, said)
        for each in made.series:
            section = text.split(f"### {each.title}\n")[1].split("\n### ")[0]
            for number in WITH_INTERVAL.findall(format_series(each)):
                assert number in section or number in map(
                    turn_sign, list_part_lines(each)[-1]
                ), (number, section)
            judge_sentence(format_series(each), each, lines)
            judge_conditions(format_series(each), each)
        judge_conditions_of_all(lead, made)
        # Rows of several processes scatter by themselves: beside rows of one, the oracle's degrees are others.
        kinds = {row.is_distributed for row in made.rows}
        if len(made.scalings) == len(kinds) == 1 and len(made.series) > 1:
            seen.append(judge_lead(made, lines))
            judge_overview(made, lines)
    assert {"fastest", "untold"} <= set(seen)


def answer_of_parts(made):
    """Return every number of the tables of parts.

    Gains are included a second time without their sign, because sentences omit it.
    """
    cells = [
        cell for each in made.series for line in list_part_lines(each) for cell in line
    ]
    return [*cells, *map(turn_sign, cells)]


def list_part_lines(series):
    """Return the lines of a series' table of parts."""
    return [
        line for grid in table.make_parts_section(series).grids for line in grid.lines
    ]


def turn_sign(cell):
    """ "-8.0 ± 2.0" as "8.0 ± 2.0", "-47 [-102, -7]" as "47 [7, 102]"."""
    if match := re.fullmatch(r"-(\S+) \[(-?)(\S+), (-?)(\S+)\]", cell):
        value, low, high = (
            match[1],
            f"{'' if match[2] else '-'}{match[3]}",
            f"{'' if match[4] else '-'}{match[5]}",
        )
        return f"{value} [{high}, {low}]".replace("-0]", "0]")
    return cell.removeprefix("-")


def judge_sentence(said, series, lines):
    row = series.largest_row
    if row is None or row.num_devices == 1:
        return
    value, low, high = lines[series.title, row.num_devices]["efficiency"]
    if math.isnan(value):
        if row.is_speedup_hidden:
            assert "hides how it scales" in said and "`" in said
        else:
            assert "run on 1 device is missing" in said
    elif math.isnan(low):
        assert "about" in said
        assert "--repeats=" in said
        assert "points" not in said.split("--repeats=")[0]
    elif high - low < value:
        assert "reaches" in said and "about" not in said
        assert ("difference from the ideal is" in said) <= (low <= 1 <= high)
        assert ("more than the ideal" in said) <= (low > 1)
        assert "slow" not in said and "cache" not in said


def judge_conditions(said, series):
    """Load and shared cores of the runs behind a sentence are named in it."""
    row = series.largest_row
    if row is None:
        return
    base = row.baseline
    named = re.search(
        "contention|exchange|fixed cost", said.lower()
    )  # parts are made of other series' rows, too
    rows = [row, base, *(series.largest_loss.rows if named else ())]
    records = {
        id(record): record
        for each in rows
        if each
        for record in select_counted_runs(each)
    }.values()
    loads = [
        # The machine has two cores; each device uses one of them.
        (record.environment.load.others, min(2, record.config["num_devices"]))
        for record in records
        if record.environment.load
    ]
    loads += [
        (rank.load_others or 0, 1)
        for run in records
        if run.workers
        for rank in run.workers.ranks
    ]
    most = max([load for load, cores in loads if load * cores > 0.05], default=None)
    assert ("Other processes used up to" in said) == (most is not None)
    assert most is None or f"up to {100 * most:.0f} % of the cores" in said.replace(
        ".0 %", " %"
    )
    crowded = base is not None and any(
        record.resolved.oversubscribed for record in row.good_runs
    )
    assert (f"{row.devices} share 2 cores" in said) == crowded
    workers = [run.workers for run in row.good_runs if run.workers]
    assert ("lost workers" in said) == any(each.lost for each in workers)
    assert ("updates old" in said) == any(
        int(age) for each in workers for age in each.staleness or {}
    )
    if "at most 50 % of the ideal" in said:
        assert row.efficiency_percent.value <= 50


def judge_conditions_of_all(lead, made):
    """Check that no series or sentence mixes machines.

    The first line names the machines if there are several.
    """
    machines = [
        {record.environment.cpu for row in each.rows for record in row.records}
        for each in made.series
    ]
    assert all(len(own) <= 1 for own in machines)
    several = len({cpu for own in machines for cpu in own}) > 1
    assert table.format_text(made).startswith("The runs are from 2 machines") == several
    firsts = {
        each.is_strong_scaling for each in made.series if each.machine == "machine 1"
    }
    assert not several or len(
        re.findall("(?:Weak|Strong) scaling, machine 1: ", lead)
    ) == len(firsts)


def judge_overview(made, lines):
    stated = {each.kind: each.values for each in conclusions.state_overview(made)}
    span = stated.get("efficiency-range") or stated.get("efficiency-range-mixed")
    if span is None or "single-runs" in stated:
        return
    known = {}
    for each in made.series:
        if each.largest_row and each.largest_row.num_devices > 1:
            value, low, high = lines[each.title, each.largest_row.num_devices][
                "efficiency"
            ]
            if not math.isnan(low) and high - low <= value:
                known[each.title] = value
    assert span["series"] == len(known)
    named = [span["low_name"], span["high_name"]]
    assert named == [min(known, key=known.get), max(known, key=known.get)]
    low, high = (
        lines[title, find_devices(made, title)]["efficiency"] for title in named
    )
    assert "range-within-noise" in stated or high[0] > low[2] and high[1] > low[0]


def find_devices(made, title):
    return next(
        each.largest_row.num_devices for each in made.series if each.title == title
    )
