"""Names contain only the options that distinguish configurations."""

from rnn_scaling.config.naming import find_distinguishing

NAMES = ["num_buckets", "seed", "model"]


def test_options_are_compared_between_configurations_that_read_them():
    read = [{"seed": 1, "model": "nmt"}, {"seed": 1, "num_buckets": 5, "model": "nmt"}]
    assert find_distinguishing(NAMES, read) == []
    read.append({"seed": 2, "num_buckets": 6, "model": "nmt"})
    assert find_distinguishing(NAMES, read) == ["num_buckets", "seed"]


def test_a_model_that_is_not_the_default_is_always_named():
    assert find_distinguishing(["model"], [{"model": "lm"}]) == ["model"]
