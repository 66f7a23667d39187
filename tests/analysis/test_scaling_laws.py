"""benchmarks/scaling_laws.py: each law recovers a curve of its own kind."""

import numpy as np
import pytest

from benchmarks import scaling_laws
from rnn_scaling.analysis.prediction.curves import STRONG, WEAK

FEW, MORE = np.array([1, 2, 4]), np.array([8, 16, 64])
OWN = {
    ("Amdahl", WEAK): lambda n: 5 / (0.1 + 0.9 / n),
    ("USL", WEAK): lambda n: 5 * n / (1 + 0.05 * (n - 1) + 0.01 * n * (n - 1)),
    ("ring", STRONG): lambda n: 1 / (0.2 / n + 0.03 * 2 * (n - 1) / n),
}


@pytest.mark.parametrize("law, scaling", OWN)
def test_a_law_extrapolates_its_own_curve(law, scaling):
    truth = OWN[law, scaling]
    found = scaling_laws.extrapolate(law, FEW, truth(FEW), scaling, MORE)
    np.testing.assert_allclose(found, truth(MORE), rtol=1e-6)


@pytest.mark.parametrize("law", ["USL", "ring"])
def test_no_coefficient_is_negative(law):
    """Rates above the ideal would need one; the fit is then the ideal line."""
    found = scaling_laws.extrapolate(law, FEW, np.array([1.0, 2.2, 4.8]), WEAK, MORE)
    assert np.all(np.diff(found / MORE) == pytest.approx(0))
