"""The operators that set-up built, for all tests of networks.

Only fixtures import TensorFlow: --quick reads this file, too.
"""

import pytest

from rnn_scaling.models.extension import switch

PROCESSOR = switch.read_processor_instructions()
# AVX2 is tested on every machine: a processor with AVX-512 would hide a fault in it.
VARIANTS = ["avx2"]
VARIANTS += [
    name
    for name in switch.NEEDED
    if name != "avx2" and switch.find_problem(name, PROCESSOR) is None
]
HAS_AVX2 = switch.find_problem("avx2", PROCESSOR) is None


@pytest.fixture(scope="session")
def library_file(tf, tmp_path_factory):
    """Return the library that set-up built, or build one.

    A process loads one library: TensorFlow registers an operator only once.
    """
    from rnn_scaling.models.extension import build, operators

    with pytest.MonkeyPatch.context() as patch:
        if not build._is_intact(operators.find_library_file()):
            patch.setattr(operators, "FOLDER", tmp_path_factory.mktemp("extension"))
            try:
                build.build()
            except (RuntimeError, OSError) as e:
                pytest.skip(str(e))
        return operators.find_library_file()


@pytest.fixture(scope="module")
def library(library_file):
    """Yield the operators of the library, which the process finds in its folder."""
    from rnn_scaling.models.extension import operators

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "FOLDER", library_file.parent)
        yield operators._load_library(library_file)


@pytest.fixture(params=VARIANTS)
def taken(request, library, monkeypatch):
    """Let every kernel use the operators of one instruction set, whatever the threads.

    The operators are not tested before: the tests do that.
    """
    from rnn_scaling.models.extension import operators

    if not HAS_AVX2:
        pytest.skip("the processor has no AVX2")
    assert library.rnn_scaling_use(request.param.encode()) == request.param.encode()
    monkeypatch.setenv(operators.SWITCH, request.param)
    monkeypatch.setattr(operators, "is_usable", lambda dtype: True)
    yield request.param
    library.rnn_scaling_use(b"")
