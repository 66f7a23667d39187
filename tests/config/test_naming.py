"""Names hold what tells configurations apart, and no more."""

from __future__ import annotations

from rnn_scaling.config.naming import distinguishing


def test_what_only_some_read_tells_those_apart_alone():
    read = [
        {"seed": 1, "model": "nmt"},
        {"seed": 1, "num_buckets": 5, "model": "nmt"},
    ]
    assert distinguishing(["num_buckets", "seed", "model"], read) == []
    read += [{"seed": 2, "num_buckets": 6, "model": "nmt"}]
    assert distinguishing(["num_buckets", "seed", "model"], read) == [
        "num_buckets",
        "seed",
    ]


def test_a_model_that_is_not_the_default_is_named_alone_too():
    assert distinguishing(["model"], [{"model": "lm"}]) == ["model"]
