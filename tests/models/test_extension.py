"""This project's operators against the plain reference.

Blocks, panels and vectors do not divide the sizes.
"""

import dataclasses
import os
import shutil
import subprocess

import numpy as np
import pytest

from rnn_scaling.models import operators_check
from rnn_scaling.models.encoders import block_lstm, gru_steps
from rnn_scaling.models.extension import build, operators
from tests.models import lstm_case
from tests.models.conftest import HAS_AVX2, VARIANTS
from tests.models.test_cross_entropy import N, assert_loss_is_tensorflows
from tests.models.test_kernels import TOLERANCES
from tests.support.paths import ROOT

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or os.uname().machine != "x86_64",
    reason="needs a C compiler for x86-64",
)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "lengths, units, width",
    [
        ((1,), 1, 1),
        # 13 sentences are 8, 4 and 1; 41 units are two vectors and a part, 164 gates
        # five panels and a part; and pairs of rows of bfloat16 with one left over.
        ((5, 1, 3, 5, 2, 4, 5, 5, 1, 1, 2, 3, 4), 41, 9),
    ],
)
def test_layers_of_odd_sizes_agree_with_the_reference(
    tf, taken, monkeypatch, lengths, units, width, dtype, cell
):
    sizes = {
        "NUM_STEPS": max(lengths),
        "BATCH": len(lengths),
        "NUM_UNITS": units,
        "INPUT_DIM": width,
    }
    for name, size in sizes.items():
        monkeypatch.setattr(lstm_case, name, size)
    stack = lstm_case.make_stack(1, 1, unit_type=cell)
    case = lstm_case.make_case(stack)
    want = lstm_case.reference_results(tf, stack, case, lengths)
    module = gru_steps if cell == "gru" else block_lstm
    cast = dataclasses.replace(stack, dtype=dtype)
    got = lstm_case.trace_results(tf, module.build(cast), cast, case)(lengths)
    assert "packed" in module.kernel_name(cast)
    lstm_case.assert_near(got, want, TOLERANCES[dtype])


@pytest.mark.parametrize("num_words", [N, None])
def test_loss_and_gradients_are_tensorflows(tf, taken, num_words):
    assert_loss_is_tensorflows(tf, num_words, scale=4.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_losses_of_any_logits(tf, taken, dtype, smoothing):
    """Logits are far apart, NaN or all equal; there are more words than lanes."""

    def ours(logits, labels):
        """Compute the loss of these logits: the projection changes nothing."""
        return operators.load().rnn_scaling_loss(
            logits, tf.eye(37, dtype=dtype), tf.zeros([0]), labels, smoothing
        )

    labels = np.array([36, 0, 5])
    logits = np.random.default_rng(0).normal(size=(3, 37)).astype(np.float32)
    logits[0, 3] = 300.0
    logits[1, 0] = 10_000.0
    logits[2, 36] = np.nan
    logits = tf.cast(logits, dtype)
    losses, is_right, d_logits = ours(logits, labels)
    assert np.isnan(losses[2]) and np.isnan(np.asarray(d_logits[2], np.float32)).any()
    logits = tf.cast(logits, tf.float32)
    target = (1 - smoothing) * tf.one_hot(labels, 37) + smoothing / 37
    want = tf.nn.softmax_cross_entropy_with_logits(target, logits)
    np.testing.assert_allclose(losses[:2], want[:2], rtol=1e-6)
    p = tf.nn.softmax(logits) - target
    tolerance = 1e-6 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(
        np.asarray(d_logits[:2], np.float32), p[:2], atol=tolerance
    )
    np.testing.assert_array_equal(is_right[:2], [0, 1])
    equal = ours(tf.zeros([3, 37], dtype), np.array([0, 1, 36]))
    np.testing.assert_array_equal(equal.is_right, [1, 0, 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="each label"):
        ours(tf.cast(logits, dtype), np.array([0, 1, 37]))


def test_no_steps_and_no_sentences_have_gradients_of_zeros(tf, taken):
    ours = operators.load()
    # The first sizes leave memory that is not zero.
    for steps, batch in [(3, 5), (0, 5), (3, 0)]:
        x = tf.ones([steps, batch, 7])
        kernel = tf.ones([12, 20])
        c = tf.ones([batch, 5])
        lengths = tf.fill([batch], steps)
        forward = ours.rnn_scaling_lstm(x, kernel, tf.ones([20]), c, c, lengths)
        d_outputs = tf.ones_like(forward.outputs)
        d = ours.rnn_scaling_lstm_grad(
            x, kernel, c, c, lengths, *forward[:3], d_outputs, c, c
        )
        for gradient in (d.d_kernel, d.d_bias):
            assert bool(tf.reduce_any(gradient != 0)) == (steps * batch > 0)


def test_operators_are_used_only_if_built_and_with_one_thread(
    tf, library, monkeypatch, tmp_path
):
    """float16 is computed in float32, whose operators the record then names."""
    monkeypatch.delenv(operators.SWITCH)
    threads = [1]
    monkeypatch.setattr(
        tf.config.threading, "get_intra_op_parallelism_threads", lambda: threads[0]
    )
    best = operators.find_instruction_set()
    assert operators.is_usable("float32") == (best is not None)
    assert not operators.is_usable("float16")
    for dtype in ("float32", "bfloat16", "float16"):
        assert operators.name_for(dtype) == (best or operators.STOCK)

    def assert_unused():
        assert not operators.is_usable("float32")
        assert operators.name_for("float32") == operators.STOCK

    threads[0] = 2
    assert_unused()
    threads[0] = 1
    monkeypatch.setenv(operators.SWITCH, "off")
    assert_unused()
    monkeypatch.delenv(operators.SWITCH)
    monkeypatch.setattr(operators, "FOLDER", tmp_path)
    assert_unused()


@pytest.fixture
def copied(library, monkeypatch, tmp_path):
    """Return the library in an empty folder, without results; skip without AVX2."""
    monkeypatch.delenv(operators.SWITCH, raising=False)
    if not operators.find_instruction_set():
        pytest.skip("the processor has no AVX2")
    copy = tmp_path / operators.find_library_file().name
    ours = operators.load()
    copy.symlink_to(operators.find_library_file().resolve())
    monkeypatch.setattr(operators, "FOLDER", tmp_path)
    # TensorFlow registers an operator only once.
    monkeypatch.setattr(operators, "_load_operators", lambda file: ours)
    return copy


def list_results(library):
    return sorted(
        path.name.removeprefix(f"{library.name}.")
        for path in library.parent.glob("*.tested")
    )


@pytest.mark.parametrize("variant", ["avx512_bf16", "avx512", "avx2"])
def test_each_instruction_set_is_tested_once_before_it_is_used(
    tf, copied, monkeypatch, variant
):
    """Expect one test, also inside a graph and under a tape."""
    monkeypatch.setenv(operators.SWITCH, variant)
    calls = []
    failure = operators_check.find_failure
    monkeypatch.setattr(
        operators_check, "find_failure", lambda: calls.append(1) or failure()
    )
    if operators._load_library(copied).rnn_scaling_use(variant.encode()) is None:
        assert operators.find_instruction_set() is None and not calls
        return  # the processor lacks it
    with tf.Graph().as_default(), tf.GradientTape():
        assert operators.find_instruction_set() == variant
    operators.test.cache_clear()  # another process
    assert operators.find_instruction_set() == variant
    assert (len(calls), list_results(copied)) == (1, [f"{variant}.tested"])


@pytest.mark.parametrize("is_read_only", [False, True])
def test_operators_that_differ_are_not_used(
    tf, copied, monkeypatch, capsys, is_read_only
):
    monkeypatch.setattr(operators_check, "TOLERANCES", {"float32": 1e-12})
    operators._warn_once.cache_clear()
    if is_read_only:
        monkeypatch.setattr(
            operators.library, "write_result", lambda *args: os.mkdir("/proc/none")
        )
    assert [operators.find_instruction_set() for _ in range(2)] == [None, None]
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1 and "lstm float32" in warning
    assert bool(list_results(copied)) != is_read_only
    monkeypatch.setattr(operators_check, "TOLERANCES", {"float32": 1.0})
    operators.test.cache_clear()
    # The next process reads the stored result.
    assert (operators.find_instruction_set() is None) != is_read_only


def test_a_shortage_of_memory_while_they_are_tested_is_not_kept(
    tf, copied, monkeypatch, capsys
):
    def short():
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")

    with monkeypatch.context() as patched:
        patched.setattr(operators_check, "_compare_all", short)
        operators._warn_once.cache_clear()
        assert operators.find_instruction_set() is None
        assert "no memory" in capsys.readouterr().err and not list_results(copied)
    operators.test.cache_clear()
    assert operators.find_instruction_set()


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("lstm", "float32"),
        ("gru", "bfloat16"),
        ("loss", "float32"),
        ("tied_loss", "bfloat16"),
        ("decode", "float32"),
        ("decode_grad", "bfloat16"),
    ],
)
@pytest.mark.parametrize("taken", VARIANTS[:1], indirect=True)
def test_the_check_sees_any_operator_that_is_wrong(tf, taken, monkeypatch, name, dtype):
    """One result is wrong by a tenth, for one dtype; the check is the same for all sets."""
    real = operators.load()

    field = "losses" if "loss" in name else "outputs"
    field = {"decode": "contexts", "decode_grad": "d_first_c"}.get(name, field)

    def wrong(*args):
        result = getattr(real, f"rnn_scaling_{name}")(*args)
        factor = 1.1 if args[0].dtype == dtype else 1
        return result._replace(**{field: getattr(result, field) * factor})

    class Operators:
        def __getattr__(self, asked):
            return wrong if asked == f"rnn_scaling_{name}" else getattr(real, asked)

    monkeypatch.setattr(operators, "load", Operators)
    assert dtype in operators_check.find_failure()


def test_the_check_accepts_right_operators_and_misses_none(tf, taken, monkeypatch):
    assert operators_check.find_failure() == ""
    monkeypatch.setattr(operators, "load", object)
    assert "rnn_scaling_lstm" in operators_check.find_failure()


def build_says(monkeypatch, folder, capsys, **variables):
    monkeypatch.setattr(operators, "FOLDER", folder)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert build.main() == 0
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "cc -no-such-flag"])
def test_a_failing_compiler_or_folder_is_one_line(
    tf, monkeypatch, tmp_path, capsys, compiler
):
    line = build_says(monkeypatch, tmp_path, capsys, CC=compiler)
    assert "not built" in line and compiler.split()[0] in line
    assert not list(tmp_path.iterdir())
    assert "not built" in build_says(monkeypatch, tmp_path / "none", capsys)


@needs_compiler
@pytest.mark.skipif(not HAS_AVX2, reason="the processor has no AVX2")
def test_random_shapes_stay_inside_their_arrays():
    """Every result agrees with plain loops, too.

    The processor's best instruction set runs natively, other ones than AVX2 emulated.
    """
    command = [ROOT / "tools/kernels/sanitize", "4", "0", "quick"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = ran.stdout.splitlines()
    names = [line.partition(" cases")[0].rsplit(": ", 1)[0] for line in results]
    emulated = {name.rpartition(" ")[2] for name in names if "emulated" in name}
    assert emulated == {"avx512", "avx512_bf16"} - {VARIANTS[-1]}
    assert len(results) == 3
    assert ran.stdout.count("agree") == len(results)


def test_a_build_tests_and_drops_what_is_old(tf, copied, monkeypatch, capsys):
    """An existing library is not compiled again, and its result is kept."""
    old = "kernels-2.20.0-0.so"
    for name in (old, f"{old}.avx2.tested"):
        (copied.parent / name).write_text("")
    best, _ = operators.choose("")
    line = build_says(monkeypatch, copied.parent, capsys, CC="false")
    assert "tested" in line and "not" not in line
    names = sorted(path.name for path in copied.parent.iterdir())
    assert names == [copied.name, f"{copied.name}.{best}.tested"]
    identity = operators.library.identify(copied)
    kept = operators.library.find_result_file(copied, best)
    operators.library.write_result(kept, identity, "losses differ")
    operators.test.cache_clear()
    line = build_says(monkeypatch, copied.parent, capsys, CC="false")
    assert line.endswith("losses differ")
