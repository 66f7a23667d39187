"""Records of image models in every report: they are called by their model, counted in images, and have no encoder."""

import re

import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.config.spelling import make_sweep_command
from rnn_scaling.records import folder as folders
from rnn_scaling.records import record
from rnn_scaling.reports import table
from rnn_scaling.reports.summary import summarise
from rnn_scaling.reports.tensorboard import run_text
from tests.support.records import make_record

MODELS = {"resnet50": 2.0, "vgg16": 6.0}
PARAMETERS = {"trainable": 1000, "bytes": 4000, "moving": 20, "optimizer": 2000}


def run_of(model, mode, num_devices, repeat=0):
    given = {
        "model": model,
        "variable_update": mode,
        "num_devices": num_devices,
        "device": "cpu",
    }
    flat = configs.resolve(given, num_gpus=0, num_cores=2).flat()
    step_s = (
        MODELS[model]
        * (1 + 0.1 * (mode == "replicated") * (num_devices - 1))
        * (1 + 0.01 * repeat)
    )
    seconds = [step_s] * 12
    return make_record(
        config=flat,
        seconds=seconds,
        items=[8 * num_devices] * 12,
        warmup=2,
        parameters=PARAMETERS,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("images")
    for model in MODELS:
        for mode in ("independent", "replicated"):
            for number in (1, 2):
                for repeat in (1, 2):
                    run = run_of(model, mode, number, repeat)
                    record.write(run, path / f"{model}-{mode}-{number}.r{repeat}.json")
    return path


def test_series_are_called_by_their_model_and_counted_in_images(folder):
    told = summarise(folders.read(folder), "images")
    titles = [series.title for series in told.series]
    assert titles == [
        f"{model}, {mode}" for model in MODELS for mode in ("independent", "replicated")
    ]
    text = table.format_text(told)
    assert "Images/s on 2 devices" in text and "images/s" in text
    for word in ("words", "encoder", "cudnn", "dynamic_rnn", "LSTM"):
        assert word not in text, word
    facts = {fact.name: fact.values for fact in told.facts}
    [(text, number)] = facts["parameters"]
    assert number == 16 and re.findall(r"[\d,]+\d", text) == ["1,000", "20", "2,000"]


def test_a_run_is_repeated_by_its_model_alone_and_its_page_names_it():
    run = run_of("resnet50", "replicated", 2)
    words = make_sweep_command(run.config).split()
    assert {
        "--model=resnet50",
        "--variable_update=replicated",
        "--num_devices=2",
    } <= set(words)
    assert not [
        word
        for word in words
        if word.startswith(("--encoder", "--batch_size", "--dataset", "--unit"))
    ]
    text = run_text.format_markdown(run)
    assert (
        text.startswith("## resnet50, replicated, 2 devices\n")
        and "--model=resnet50" in text
    )
