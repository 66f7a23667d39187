"""The command verify: refused flags, default options and the exit status."""

import contextlib
import io

import numpy as np
import pytest

from rnn_scaling.commands import verify
from rnn_scaling.config import run_config as configs
from rnn_scaling.records import record
from rnn_scaling.reports.certificates import format_certificate
from rnn_scaling.sweeps.certifying_runs import choose_verification_defaults
from rnn_scaling.verification import certificates, rule
from tests.support import forked


@pytest.mark.parametrize(
    "words, flag",
    [(["--log_dir=x"], "--log_dir=x"), (["--machine", "--num_workers=2"], "--machine")],
)
def test_bad_flags(words, flag, capsys):
    assert verify.main(words) == 2
    assert flag in capsys.readouterr().err


def test_defaults():
    single = choose_verification_defaults({})
    assert single["variable_update"] == "replicated"
    assert single["num_devices"] == 2
    assert single["optimizer"] == "sgd"
    several = choose_verification_defaults({"num_workers": 3})
    assert several["variable_update"] == "collective_all_reduce"
    assert several["num_devices"] == 1
    launched = choose_verification_defaults({}, has_launcher=True)
    assert launched["variable_update"] == "collective_all_reduce"
    assert "num_workers" not in launched
    options_by_rate = {
        0.5: {},
        0.001: {"optimizer": "adam"},
        0.05: {"model": "resnet20"},
        0.002: {"model": "alexnet"},
        0.0002: {"model": "vgg16", "optimizer": "momentum"},
        0.0001: {"model": "vgg16", "optimizer": "adam"},
    }
    for rate, options in options_by_rate.items():
        defaults = choose_verification_defaults(options)
        assert defaults["learning_rate"] == pytest.approx(rate)
    assert "learning_rate" not in choose_verification_defaults({"optimizer": "none"})


def test_a_wrong_run_ends_with_1_and_has_the_fault_in_its_record(tmp_path):
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
    assert format_certificate(certificate) in printed
    assert "| Batch | Loss, serial |" in printed


@pytest.mark.parametrize(
    "scaling, rate",
    [
        ({}, "0.5"),
        ({"lr_scaling": "linear", "lr_warmup_batches": 3}, "0.5 to 1 in 3 updates"),
    ],
)
def test_the_certificate_has_the_scaled_learning_rate(scaling, rate):
    options = {"device": "cpu", "num_devices": 2, "learning_rate": 0.5, **scaling}
    options["variable_update"] = "replicated"
    config = configs.resolve(options, num_gpus=0, num_cores=2)
    text = certificates.describe_comparison(config, 6)
    assert text.partition("learning rate ")[2].split(",")[0] == rate


def _verify_half_the_rate(words):
    """Verify against serial training that moves half as far, so towers seem summed.

    Returns:
      The exit status and stdout.
    """
    change = rule.SerialUpdateRule._optimize

    def half(self, name, gradient):
        return change(self, name, gradient * np.float32(0.5))

    rule.SerialUpdateRule._optimize = half
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = verify.main(words)
    return status, printed.getvalue()
