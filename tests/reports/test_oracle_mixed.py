"""Check reports on random folders with an oracle that reads only the records.

The folders mix programs, workloads and faults.
"""

import dataclasses
import math
import random
import re

from rnn_scaling.config import registry
from rnn_scaling.records.options import Options
from rnn_scaling.reports import cautions, conclusions, csv_table, headline, table
from rnn_scaling.reports.page import scaling
from rnn_scaling.reports.series_statements import format_series
from rnn_scaling.reports.wording import write_sentences
from tests.reports.test_oracle import WITH_INTERVAL, answer_of_parts
from tests.support.records import change_record
from tests.support.scaling_runs import run, summarise_records
from tests.support.views import render_json

FOLDERS = 50
MODES = ("independent", "parameter_server", "replicated", "mirrored")
WRONG = {"verdict": "sum", "holds": False, "sentence": "It adds gradients up."}
RIGHT = {
    "verdict": "equal within 1e-05",
    "holds": True,
    "sentence": "It trains as one device would.",
}


def draw_suite_options(random_):
    """Return options of this project's trainer: a mode and up to three others."""
    options = {"variable_update": random_.choice(MODES)}
    choices = {
        "batch_size": (16, 32, 64),
        "compute_dtype": ("float32", "bfloat16"),
        "model": ("nmt", "lm"),
        "encoder_type": ("cudnn_lstm", "dynamic_rnn"),
        "framework": ("tensorflow", "torch"),
        "global_batch_size": (0, 64),
        "num_devices": (1, 2),  # per worker
    }
    for name in random_.sample(list(choices), random_.randint(0, 3)):
        options[name] = random_.choice(choices[name])
    if "num_devices" in options:
        options["variable_update"] = random_.choice(
            ("distributed_independent", "collective_all_reduce")
        )
    return options


def draw_user_options(random_):
    """Return options of a user's trainer, which records only few of them."""
    options = {"trainer": random_.choice(("mine", "yours"))}
    choices = {
        "model": ("lm", "other"),
        "batch_size": (8, 32),
        "hidden": (1, 2),
        "variable_update": ("independent", "replicated"),
        "global_batch_size": (64,),
    }
    for name in random_.sample(list(choices), random_.randint(0, 3)):
        options[name] = random_.choice(choices[name])
    return options


def make_run(options, count, rate, random_):
    """Return a run of these options on `count` devices, or workers."""
    status = "failed" if random_.random() < 0.05 else "ok"
    seconds = 20_000 / rate
    if "trainer" in options:
        made = run(count, rate, status, seconds)
        made = dataclasses.replace(
            made, options=Options({**options, "num_devices": count}), unit="items"
        )
        if random_.random() < 0.5 and status == "ok":
            throughput = {
                "items": None,
                "seconds": None,
                "items_per_second": float(f"{rate:.2g}"),
            }
            made = change_record(
                made,
                batches={},
                throughput=throughput,
                phases={},
                log_format="seed_trainer",
            )
        return made
    devices_per_worker = options.get("num_devices")
    workers = {"num_workers": count} if devices_per_worker else {}
    made = run(
        devices_per_worker or count,
        rate,
        status,
        seconds,
        **{k: v for k, v in options.items() if k != "num_devices"},
        **workers,
    )
    return change_record(made, unit="tokens") if options.get("model") == "lm" else made


def add_troubles(made, random_):
    """Add random troubles to a run.

    These are a certificate, a different kind of device, or a loss that is not finite or
    has grown.
    """
    if random_.random() < 0.2:
        made = change_record(made, certificate=random_.choice([WRONG, RIGHT, RIGHT]))
    if random_.random() < 0.1:
        made = change_record(
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
    return change_record(
        made, environment={"cpu": random_.choice("AAAAAAB"), "cpu_cores": 2}
    )


def folder(random_):
    """Return runs of one to five configurations of one to three programs."""
    programs = random_.choice(
        [
            (draw_suite_options,),
            (draw_user_options,),
            (draw_suite_options, draw_user_options),
        ]
    )
    settings = [random_.choice(programs)(random_) for _ in range(random_.randint(1, 5))]
    scatter = random_.choice([0.0, 0.01, 0.1])
    repeats = random_.randint(1, 3)
    has_troubles = random_.random() < 0.5
    runs = []
    for options in settings:
        base = random_.uniform(500, 2000)
        by_hand = "batch_size" in options and random_.random() < 0.5
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
                made = make_run(options, count, rate, random_)
                runs.append(add_troubles(made, random_) if has_troubles else made)
    return runs


def test_no_sentence_on_several_programs_says_more_than_their_records():
    random_ = random.Random(11)
    seen = set()
    for _ in range(FOLDERS):
        made = summarise_records(folder(random_))
        titles = [each.title for each in made.series]
        assert len(set(titles)) == len(titles), titles
        # test_option_effects recomputes the numbers of the headline.
        details = [
            statement
            for statement in conclusions.state_answer(made)
            if statement.kind not in headline.KINDS
        ]
        lead = write_sentences(details)
        text = table.format_text(made)
        answer_texts = [
            lead,
            conclusions.format_overview(made),
            *map(format_series, made.series),
        ]
        for answer_text in answer_texts:
            for number in WITH_INTERVAL.findall(answer_text):
                assert number in text or number in answer_of_parts(made), (
                    number,
                    answer_text,
                )
        for paragraph in (
            *answer_texts,
            *cautions.format_cautions(made),
            *cautions.write_opening_paragraphs(made),
        ):
            assert paragraph == "" or paragraph.endswith("."), paragraph
            assert not re.search(
                r"\bnan\b|\binf\b|\bNone\b(?! of)|  |, ,|, :|\.\.| 0 %\.", paragraph
            ), paragraph
        judge_work(made, lead)
        judge_one_model(made, lead)
        judge_hand_made(made)
        judge_losses(made)
        wrong = any(is_wrong(run) for row in made.rows for run in row.records)
        assert not made.measured or lead.startswith("TRAINS WRONG") == wrong
        for each in made.series:
            judge_constant(made, each)
        render_json(made)
        csv_table.render(made)
        kinds = {each.kind for each in conclusions.state_answer(made)}
        seen |= kinds & {"fastest", "unknown-work", "one-ranked", "trains-wrong"}
        seen |= {
            word
            for word in (
                "amount to the same total work",
                "loss is no longer finite",
                "one physical GPU",
            )
            if word in " ".join(cautions.format_cautions(made))
        }
    assert len(seen) == 7, seen


def total_samples(config):
    """Return the samples per step of all devices.

    Records of a user's trainer may contain only the samples per device.
    """
    return (
        config.get("global_batch_size")
        or config.get("batch_size", 0) * config["num_devices"]
    )


def list_works(series):
    """Return the recorded work of a series: unit, workload or trainer, samples per step."""
    config = series.rows[0].records[0].config
    samples = config.get("batch_size", 0)
    if series.is_strong_scaling:
        samples = total_samples(config)
    return series.unit, config.get("model", config.get("trainer")), samples


def judge_work(made, lead):
    """Check that series of several programs are ranked only if all recorded equal work."""
    for _, series in made.scalings:
        trainers = {each.rows[0].records[0].config.get("trainer") for each in series}
        assert len(trainers) == 1 or len({list_works(each) for each in series}) == 1
        assert len({each.machine for each in series}) == 1


def judge_one_model(made, lead):
    """Check the number of series among which the fastest one is chosen.

    It counts only series that train one model, and train it correctly, if the answer
    states these restrictions.
    """
    if len(made.scalings) != 1:
        return
    [(_, series)] = made.scalings
    several = [
        each for each in series if each.largest_row and each.largest_row.num_devices > 1
    ]
    one = [
        each
        for each in several
        if registry.find_mode(each.rows[0].options["variable_update"]).trains_one_model
    ]
    candidates = one or several
    right = [
        each
        for each in candidates
        if not any(is_wrong(run) for row in each.rows for run in row.records)
    ]
    stated = {each.kind: each for each in conclusions.state_answer(made)}
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
    for statement in cautions.find_hand_made_strong_scaling(made):
        sizes = re.findall(
            r"--batch_size=(\d+) on (\d+) device", " ".join(statement.values["sizes"])
        )
        assert len({int(size) * int(count) for size, count in sizes}) == 1
        assert len({size for size, _ in sizes}) > 1
        assert statement.subject.strip(", ") == statement.subject


def judge_losses(made):
    caution = " ".join(cautions.format_cautions(made))
    runs = dict(made.named_runs)
    ends = {name: run for name, run in runs.items() if run.batches.loss[-1:] == (None,)}
    lost = [
        name
        for name, run in ends.items()
        if run.batches.loss[1] is not None or "trainer" not in run.config
    ]
    assert ("loss is no longer finite" in caution) == bool(lost)
    grown = [name for name, run in runs.items() if run.batches.loss[-1:] == (400.0,)]
    assert ("grew more than 10-fold" in caution) == bool(grown)


def judge_constant(made, series):
    """Check that the stated work of a device agrees with every record."""
    note = scaling._make_series_section(series).notes[0]
    configs = []
    for row in series.rows:
        configs += [run.config for run in row.records]
    if match := re.search(r"every device processes (\d+) ", note):
        assert {config.get("batch_size") for config in configs} == {int(match[1])}, note
    elif match := re.search(r"all devices together process (\d+) ", note):
        assert {total_samples(config) for config in configs} == {int(match[1])}, note
    else:
        assert not any("batch_size" in config for config in configs), note
