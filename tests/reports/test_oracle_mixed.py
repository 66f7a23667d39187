"""Random folders of several programs, works and faults against an oracle that knows only their records."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re

from rnn_scaling.config import registry
from rnn_scaling.records.options import Options
from rnn_scaling.reports import cautions, conclusions, csv_table, json_report, table
from rnn_scaling.reports.page import scaling
from rnn_scaling.reports.series_statements import series_text
from tests.reports.test_oracle import WITH_INTERVAL, answer_of_parts
from tests.support.records import changed
from tests.support.scaling_runs import of, run

FOLDERS = 50
MODES = ("independent", "parameter_server", "replicated", "mirrored")
WRONG = {"verdict": "sum", "holds": False, "sentence": "It adds gradients up."}
RIGHT = {
    "verdict": "equal within 1e-05",
    "holds": True,
    "sentence": "It trains as one device would.",
}


def ours(random_):
    """Options of our trainer: a mode and a few of what tells runs apart."""
    options = {"variable_update": random_.choice(MODES)}
    choices = {
        "batch_size": (16, 32, 64),
        "compute_dtype": ("float32", "bfloat16"),
        "model": ("nmt", "lm"),
        "encoder_type": ("cudnn_lstm", "dynamic_rnn"),
        "framework": ("tensorflow", "torch"),
        "global_batch_size": (0, 64),
        "num_devices": (1, 2),  # of a worker
    }
    for name in random_.sample(list(choices), random_.randint(0, 3)):
        options[name] = random_.choice(choices[name])
    if "num_devices" in options:
        options["variable_update"] = random_.choice(
            ("distributed_independent", "collective_all_reduce")
        )
    return options


def theirs(random_):
    """Options of another trainer, which tells few of them."""
    told = {"trainer": random_.choice(("mine", "yours"))}
    choices = {
        "model": ("lm", "other"),
        "batch_size": (8, 32),
        "hidden": (1, 2),
        "variable_update": ("independent", "replicated"),
        "global_batch_size": (64,),
    }
    for name in random_.sample(list(choices), random_.randint(0, 3)):
        told[name] = random_.choice(choices[name])
    return told


def made_by(options, count, rate, random_):
    """A run on so many devices, or workers."""
    status = "failed" if random_.random() < 0.05 else "ok"
    seconds = 20_000 / rate
    if "trainer" in options:
        made = run(count, rate, status, seconds)
        made = dataclasses.replace(
            made, options=Options({**options, "num_devices": count}), unit="items"
        )
        if random_.random() < 0.5 and status == "ok":
            alone = {
                "items": None,
                "seconds": None,
                "items_per_second": float(f"{rate:.2g}"),
            }
            made = changed(
                made, batches={}, throughput=alone, phases={}, log_format="seed_trainer"
            )
        return made
    each = options.get("num_devices")
    places = {"num_workers": count} if each else {}
    made = run(
        each or count,
        rate,
        status,
        seconds,
        **{k: v for k, v in options.items() if k != "num_devices"},
        **places,
    )
    return changed(made, unit="tokens") if options.get("model") == "lm" else made


def troubled(made, random_):
    """The run with a certificate, another kind of device, or a loss that left the numbers."""
    if random_.random() < 0.2:
        made = changed(made, certificate=random_.choice([WRONG, RIGHT, RIGHT]))
    if random_.random() < 0.1:
        made = changed(
            made,
            resolved={
                "device_type": random_.choice(["GPU", "CPU"]),
                "logical_devices": True,
            },
        )
    if made.batches.seconds and random_.random() < 0.1:
        loss = random_.choice(
            [(2.0, 1.9, None), (2.0, None, None), (2.0, 3.0, 400.0), (None, None, None)]
        )
        made = dataclasses.replace(
            made, batches=dataclasses.replace(made.batches, loss=loss)
        )
    return changed(made, environment={"cpu": random_.choice("AAAAAAB"), "cpu_cores": 2})


def folder(random_):
    """Runs of one to five settings of one to three programs."""
    programs = random_.choice([(ours,), (theirs,), (ours, theirs)])
    settings = [random_.choice(programs)(random_) for _ in range(random_.randint(1, 5))]
    scatter, repeats, troubles = (
        random_.choice([0.0, 0.01, 0.1]),
        random_.randint(1, 3),
        random_.random() < 0.5,
    )
    runs = []
    for options in settings:
        base, by_hand = (
            random_.uniform(500, 2000),
            "batch_size" in options and random_.random() < 0.5,
        )
        for count in random_.sample((1, 2, 4), random_.randint(1, 3)):
            options = {**options, "batch_size": 64 // count} if by_hand else options
            lost = random_.uniform(-0.1, 0.5) * math.log2(count)
            for _ in range(random_.randint(1, repeats)):
                rate = (
                    base
                    * count
                    * max(0.1, 1 - lost)
                    * math.exp(random_.gauss(0, scatter))
                )
                made = made_by(options, count, rate, random_)
                runs.append(troubled(made, random_) if troubles else made)
    return runs


def test_no_sentence_on_several_programs_says_more_than_their_records():
    random_, seen = random.Random(11), set()
    for _ in range(FOLDERS):
        made = of(folder(random_))
        titles = [each.title for each in made.series]
        assert len(set(titles)) == len(titles), titles
        lead, text = conclusions.answer_text(made), table.text(made)
        for said in (
            lead,
            conclusions.overview_text(made),
            *map(series_text, made.series),
            *cautions.caution_texts(made),
            *cautions.opening_paragraphs(made),
        ):
            assert said == "" or said.endswith("."), said
            assert not re.search(
                r"\bnan\b|\binf\b|\bNone\b(?! of)|  |, ,|, :|\.\.| 0 %\.", said
            ), said
        for said in (
            lead,
            conclusions.overview_text(made),
            *map(series_text, made.series),
        ):
            for number in WITH_INTERVAL.findall(said):
                assert number in text or number in answer_of_parts(made), (number, said)
        judge_work(made, lead)
        judge_one_model(made, lead)
        judge_hand_made(made)
        judge_losses(made)
        wrong = any(is_wrong(run) for row in made.rows for run in row.records)
        assert not made.measured or lead.startswith("TRAINS WRONG") == wrong
        for each in made.series:
            judge_constant(made, each)
        json.loads(json_report.render(made))
        csv_table.render(made)
        kinds = {each.kind for each in conclusions.answer_statements(made)}
        seen |= kinds & {"fastest", "unknown-work", "one-ranked", "trains-wrong"}
        seen |= {
            word
            for word in ("are the same total work", "no finite loss", "one real GPU")
            if word in " ".join(cautions.caution_texts(made))
        }
    assert len(seen) == 7, seen


def total(config):
    """Samples a step of all devices; another trainer's records may have those of one device alone."""
    return (
        config.get("global_batch_size")
        or config.get("batch_size", 0) * config["num_devices"]
    )


def works_of(series):
    """What the records of a series tell of its work: unit, workload or trainer, samples a step."""
    config = series.rows[0].row.records[0].config
    sizes = total(config) if series.is_strong_scaling else config.get("batch_size", 0)
    return series.unit, config.get("model", config.get("trainer")), sizes


def judge_work(made, lead):
    """Series of several programs are ranked only where all tell the same work."""
    for _, series in made.scalings:
        trainers = {
            each.rows[0].row.records[0].config.get("trainer") for each in series
        }
        assert len(trainers) == 1 or len({works_of(each) for each in series}) == 1
        assert len({each.machine for each in series}) == 1


def judge_one_model(made, lead):
    """How many series train one model, and train it right, is counted among those of which that is said."""
    if len(made.scalings) != 1:
        return
    ((_, series),) = made.scalings
    several = [
        each
        for each in series
        if each.largest_row and each.largest_row.row.num_devices > 1
    ]
    one = [
        each
        for each in several
        if registry.mode_of(
            each.rows[0].row.options["variable_update"]
        ).trains_one_model
    ]
    candidates = one or several
    right = [
        each
        for each in candidates
        if not any(is_wrong(run) for row in each.rows for run in row.row.records)
    ]
    stated = {each.kind: each for each in conclusions.answer_statements(made)}
    if "fastest" in stated and not stated["fastest"].values["devices"].startswith("1 "):
        some_are_wrong = 0 < len(right) < len(candidates)
        assert ("ranked-one-model" in stated) == (0 < len(one) < len(several))
        assert ("ranked-right" in stated) == some_are_wrong
        assert stated["fastest"].values["series"] == len(
            right if some_are_wrong else candidates
        )


def is_wrong(run):
    return run.certificate is not None and not run.certificate.holds


def judge_hand_made(made):
    for statement in cautions.hand_made_strong_scaling(made):
        sizes = re.findall(
            r"--batch_size=(\d+) on (\d+) device", " ".join(statement.values["sizes"])
        )
        assert len({int(size) * int(count) for size, count in sizes}) == 1
        assert (
            len({size for size, _ in sizes}) > 1
            and statement.subject.strip(", ") == statement.subject
        )


def judge_losses(made):
    told = " ".join(cautions.caution_texts(made))
    runs = {
        name: run
        for series in made.series
        for row in series.rows
        for name, run in zip(row.files, row.row.records)
    }
    ends = {name: run for name, run in runs.items() if run.batches.loss[-1:] == (None,)}
    lost = [
        name
        for name, run in ends.items()
        if run.batches.loss[1] is not None or "trainer" not in run.config
    ]
    assert ("no finite loss" in told) == bool(lost)
    grown = [name for name, run in runs.items() if run.batches.loss[-1:] == (400.0,)]
    assert ("grew more than 10-fold" in told) == bool(grown)


def judge_constant(made, series):
    """What is said of a device's work stands in every record."""
    constant = scaling._series_section(series).notes[0]
    told = [run.config for row in series.rows for run in row.row.records]
    if match := re.search(r"every device processes (\d+) ", constant):
        assert all(config.get("batch_size") == int(match[1]) for config in told), (
            constant
        )
    elif match := re.search(r"all devices together process (\d+) ", constant):
        assert all(total(config) == int(match[1]) for config in told), constant
    else:
        assert all("batch_size" not in config for config in told), constant
