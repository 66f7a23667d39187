"""The options of a run are complete, keep their types, and can be UNKNOWN."""

import pytest

from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.records.options import ASSUMED_VALUES, DEFAULTS, UNKNOWN, Options

FOREIGN = {"trainer": "mine", "num_devices": 2, "hidden": 8, "lr": None}


def test_an_option_that_our_record_lacks_has_its_default():
    options = Options({"num_devices": 2, "newer": 1})
    assert options.is_ours and options.known == options
    assert {*OPTIONS, "newer"} == {*options}
    assert options["num_devices"] == 2 and options["num_workers"] == 1


def test_an_option_that_another_program_did_not_record_is_unknown():
    options = Options(FOREIGN)
    assert not options.is_ours
    assert options.known == {"trainer": "mine", "num_devices": 2, "hidden": 8}
    unknown = {name for name in OPTIONS if options[name] is UNKNOWN}
    assert unknown == {*OPTIONS} - {*ASSUMED_VALUES, "num_devices"}
    assert not UNKNOWN and options.get("lr") is None


def test_a_change_leaves_the_other_options_as_they_are():
    options = Options(FOREIGN)
    changed = options.replace(global_batch_size=64)
    assert changed["global_batch_size"] == 64 and changed["hidden"] == 8
    assert options["global_batch_size"] == DEFAULTS["global_batch_size"]
    assert options.recorded == FOREIGN and options.replace() is options


def test_options_cannot_be_assigned():
    with pytest.raises(TypeError):
        Options({})["num_devices"] = 1
