"""The command verify: what it refuses, what it takes where nothing is given, and its exit status."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

from rnn_scaling.commands import verify
from rnn_scaling.config import run_config as configs
from rnn_scaling.records import record
from rnn_scaling.reports.certificates import certificate_text
from rnn_scaling.sweeps.certificates import verification_defaults
from rnn_scaling.verification import certificates, rule
from tests.support import forked


@pytest.mark.parametrize(
    "words, line",
    [
        (["--log_dir=x"], "--log_dir=x: nothing is timed or traced here; leave it out"),
        (["--until_steady=true", "--foo=1"], "--foo is not a flag"),
        (
            ["--machine", "--num_workers=2"],
            "--machine checks the devices of one process",
        ),
        (
            ["--variable_update=replicated", "--num_workers=2"],
            "--num_workers=2 would be ignored here",
        ),
    ],
)
def test_bad_flags(words, line, capsys):
    assert verify.main(words) == 2
    assert line in capsys.readouterr().err


def test_what_is_not_given():
    alone = verification_defaults({})
    assert (alone["variable_update"], alone["num_devices"], alone["optimizer"]) == (
        "replicated",
        2,
        "sgd",
    )
    several = verification_defaults({"num_workers": 3})
    assert (several["variable_update"], several["num_devices"]) == (
        "collective_all_reduce",
        1,
    )
    started = verification_defaults({}, has_launcher=True)
    assert (
        started["variable_update"] == "collective_all_reduce"
        and "num_workers" not in started
    )
    of_given = {
        **{
            0.5: {},
            0.001: {"optimizer": "adam"},
            0.05: {"model": "resnet20"},
            0.002: {"model": "alexnet"},
        },
        **{
            0.0002: {"model": "vgg16", "optimizer": "momentum"},
            0.0001: {"model": "vgg16", "optimizer": "adam"},
        },
    }
    rates = [
        verification_defaults(given)["learning_rate"] for given in of_given.values()
    ]
    assert rates == pytest.approx(list(of_given))
    assert "learning_rate" not in verification_defaults({"optimizer": "none"})


def test_a_mode_that_does_not_keep_its_promise_ends_with_1_and_its_record_says_why(
    tmp_path,
):
    words = [
        *(word for word in forked.TINY if "batches" not in word),
        f"--result_file={tmp_path}/run.json",
    ]
    status, printed = forked.call(
        _verify_half_the_rate, [*words, "--num_warmup_batches=1", "--num_batches=1"]
    )
    certificate = record.read(tmp_path / "run.json").certificate
    assert (status, certificate.holds, certificate.verdict) == (1, False, "sum")
    assert "learning rate 0.5," in certificate.compared
    assert (
        certificate_text(certificate) in printed
        and "| Batch | Loss, serial |" in printed
    )


def test_the_learning_rate_that_is_told_is_the_one_that_was_scaled():
    given = {
        "device": "cpu",
        "num_devices": 2,
        "variable_update": "replicated",
        "learning_rate": 0.5,
    }
    told = [
        certificates.compared(
            configs.resolve({**given, **scaled}, num_gpus=0, num_cores=2), 6
        )
        for scaled in (
            {},
            {"lr_scaling": "linear"},
            {"lr_scaling": "linear", "lr_warmup_batches": 3},
        )
    ]
    rates = [text.partition("learning rate ")[2].partition(",")[0] for text in told]
    assert rates == ["0.5", "1", "0.5 to 1 in 3 updates"]


def _verify_half_the_rate(words):
    """(exit status, stdout) of a verification whose serial side moves half as far: two towers then seem summed."""
    change = rule.UpdateRule._of_one
    rule.UpdateRule._of_one = lambda self, name, gradient: change(
        self, name, gradient * np.float32(0.5)
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = verify.main(words)
    return status, printed.getvalue()
