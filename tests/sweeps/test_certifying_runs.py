"""`sweep --certify`: one certificate a configuration, in the record of each of its runs, resumed as runs are."""

import pytest

from rnn_scaling.commands import sweep
from rnn_scaling.config import run_config as configs
from rnn_scaling.records import record
from rnn_scaling.reports import report_files
from rnn_scaling.sweeps import certifying_runs
from rnn_scaling.sweeps.plan import plan
from rnn_scaling.system.processes import process
from tests.support.configs import resolve
from tests.support.faults import (
    SMALL,
    list_logged,
    make_forking_subprocess,
    make_trainer_words,
    plant,
)

LABELS = ["cudnn_lstm-independent-1", "cudnn_lstm-independent-2"]
ADAM = {"optimizer": "adam"}


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    monkeypatch.setattr(report_files, "report", lambda source, target: None)
    monkeypatch.setattr(process, "subprocess", make_forking_subprocess())


def go(tmp_path, *words, **faults):
    """Run a sweep whose trainer and verifier have the planted faults."""
    own = make_trainer_words(plant(tmp_path / "faults", **faults))
    words = [f"--out={tmp_path}/out", *SMALL, "--num_devices=1,2", *words]
    return sweep.main(words, trainer=own, verifier=own)


def read_certificates(tmp_path, repeat=""):
    """Return the certificates of both configurations."""
    files = [tmp_path / f"out/{label}{repeat}.json" for label in LABELS]
    return [record.read(file).certificate for file in files]


def test_each_configuration_is_certified_once_and_a_wrong_one_is_named(tmp_path, capfd):
    wrong = {"certificates_cudnn_lstm_independent_2": "wrong"}
    assert go(tmp_path, "--repeats=2", "--certify", **wrong) == 1
    assert "cudnn_lstm-independent-2: WRONG: " in capfd.readouterr().err
    starts = list_logged(tmp_path / "faults", "start")
    assert starts[:2] == [f"certificates/{label}" for label in LABELS]
    assert len(starts) == 2 + 4
    for repeat in ("", ".r2"):
        found = [each.verdict for each in read_certificates(tmp_path, repeat)]
        assert found == ["equal within 1e-5", "sum"]
    files = sorted((tmp_path / "out").glob("*.json"))
    before = [path.read_bytes() for path in files]
    assert go(tmp_path, "--repeats=2", "--certify") == 1
    assert len(list_logged(tmp_path / "faults", "start")) == 6
    assert [path.read_bytes() for path in files] == before


def test_a_sweep_is_certified_afterwards_and_a_verification_that_fails_leaves_no_certificate(
    tmp_path, capfd
):
    assert go(tmp_path, "--repeats=1") == 0
    assert read_certificates(tmp_path) == [None, None]
    fails = {"certificates_cudnn_lstm_independent_1": "fails"}
    assert go(tmp_path, "--repeats=1", "--certify", **fails) == 1
    assert "cudnn_lstm-independent-1: no such" in capfd.readouterr().err
    first, second = read_certificates(tmp_path)
    assert first is None and second.holds
    assert len(list_logged(tmp_path / "faults", "start")) == 4


def test_the_learning_rate_grows_where_clipping_would_hide_the_steps():
    def rate(**given):
        return certifying_runs.choose_verification_defaults(given)["learning_rate"]

    assert rate(max_gradient_norm=0.002) == pytest.approx(10 * rate())
    assert rate(max_gradient_norm=1.0) == rate()
    assert rate(optimizer="adam", max_gradient_norm=0.002) == rate(optimizer="adam")


def test_a_verification_has_ragged_batches_and_odd_sizes():
    defaults = certifying_runs.choose_verification_defaults({})
    assert defaults["random_lengths"] and defaults["ragged_batches"]
    for name in certifying_runs.SMALL:
        assert defaults[name] % 2 == 1, name
    for given in ({"xla": True}, {"random_lengths": False}, {"data_source": "copy"}):
        assert "ragged_batches" not in certifying_runs.choose_verification_defaults(
            given
        )


@pytest.mark.parametrize("num_heads", [None, 1, 2, 4, 40])
def test_the_heads_of_a_transformer_have_an_odd_number_of_units(num_heads):
    options = {"model": "transformer"}
    if num_heads is not None:
        options["num_heads"] = num_heads
    defaults = certifying_runs.choose_verification_defaults(options)
    num_heads = num_heads or configs.OPTIONS["num_heads"].default
    per_head, remainder = divmod(defaults["num_units"], num_heads)
    assert remainder == 0 and per_head % 2 == 1


def test_one_embedding_for_both_sides_has_one_vocabulary():
    defaults = certifying_runs.choose_verification_defaults({"share_embedding": True})
    assert defaults["src_vocab_size"] == defaults["tgt_vocab_size"]


def test_a_verification_has_the_flags_of_the_run_but_those_of_measuring(tmp_path):
    given = {"encoder_type": "cudnn_lstm", "variable_update": "replicated"}
    given |= {"num_devices": 2, "learning_rate": 0.001}
    measuring = {"num_batches": 200, "trace_batches": 3, "until_steady": True}
    for chosen, optimizer, rate in (({}, "sgd", 0.5), (ADAM, "adam", 0.001)):
        options = {**given, **measuring, **chosen}
        lists = {name: [value] for name, value in options.items()}
        [run] = plan(lists, num_gpus=0, num_cores=2)
        [job] = certifying_runs.plan_jobs([run], tmp_path)
        assert job.path == tmp_path / "certificates" / f"{run.label}.json"
        flat = job.run.config.flat()
        assert flat["optimizer"] == optimizer
        assert flat["learning_rate"] == rate
        assert [flat[name] for name in measuring] == [11, 0, False]
        flags = {
            **certifying_runs.choose_verification_defaults(job.run.flags),
            **job.run.flags,
        }
        expected = resolve(flags).flat()
        assert flat == expected | {"progress": True}
