"""oneDNN is turned on if text models are faster with it and TensorFlow's default is off."""

import pytest

from rnn_scaling.system.machine.onednn import ONEDNN_VARIABLE, turn_on_onednn

AVX2 = ["avx", "avx2", "fma"]


def test_it_is_turned_on_without_the_units_of_tensorflows_default():
    variables = {}
    assert turn_on_onednn(AVX2, variables)
    assert variables == {ONEDNN_VARIABLE: "1"}


@pytest.mark.parametrize(
    "units", [[*AVX2, "avx512f", "avx512_vnni"], [*AVX2, "avx_vnni"], ["avx"], []]
)
def test_tensorflows_choice_stays_on_other_processors(units):
    variables = {}
    assert not turn_on_onednn(units, variables)
    assert variables == {}


@pytest.mark.parametrize("value", ["0", "1", ""])
def test_the_users_choice_stays(value):
    variables = {ONEDNN_VARIABLE: value}
    assert not turn_on_onednn(AVX2, variables)
    assert variables == {ONEDNN_VARIABLE: value}
