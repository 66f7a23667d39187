"""Our own operators against the plain reference, at sizes that leave parts of blocks, panels and vectors over."""

import dataclasses
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from rnn_scaling.models.extension import switch
from tests.models import lstm_case, test_cross_entropy
from tests.models.test_kernels import SHAPES, TOLERANCES
from tests.support.paths import ROOT

PROCESSOR = switch.processor_instructions()
# AVX2 is tested on every machine: a processor with AVX-512 would hide a fault in it.
VARIANTS = ["avx2"]
VARIANTS += [
    name
    for name in switch.NEEDED
    if name != "avx2" and switch.problem(name, PROCESSOR) is None
]
HAS_AVX2 = switch.problem("avx2", PROCESSOR) is None
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or os.uname().machine != "x86_64",
    reason="needs a C compiler for x86-64",
)


@pytest.fixture(scope="module")
def library(tf, tmp_path_factory):
    """Yield the operators that set-up built, or build them."""
    from rnn_scaling.models.extension import build, operators

    before = operators.FOLDER
    built = operators.library_file()
    if not build._is_whole(built):
        operators.FOLDER = tmp_path_factory.mktemp("extension")
        try:
            built, _ = build.build()
        except (RuntimeError, OSError) as e:
            operators.FOLDER = before
            pytest.skip(str(e))
    yield operators._library(built)
    operators.FOLDER = before


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
    monkeypatch.setattr(operators, "usable", lambda dtype: True)
    yield request.param
    library.rnn_scaling_use(b"")


def kernel_of(stack):
    from rnn_scaling.models.encoders import block_lstm, gru_steps

    return gru_steps if stack.unit_type == "gru" else block_lstm


def largest_error(tf, stack, lengths, dtype="float32"):
    from rnn_scaling.models import stacks

    case, module = lstm_case.make_case(stack), kernel_of(stack)
    want = lstm_case.results_of_constants(
        tf, stacks.reference(stack), stack, case, lengths
    )
    made = dataclasses.replace(stack, dtype=dtype)
    got = lstm_case.traced(tf, module.build(made), made, case)(lengths)
    assert "packed" in module.kernel_name(made)
    return lstm_case.largest_error(got, want)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("num_layers, num_directions, time_major", SHAPES)
def test_layers_are_the_references(
    tf, taken, num_layers, num_directions, time_major, cell
):
    stack = lstm_case.make_stack(
        num_layers, num_directions, time_major=time_major, unit_type=cell
    )
    error, name = largest_error(tf, stack, lstm_case.UNEQUAL)
    assert error <= TOLERANCES["float32"], name


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "lengths, units, width",
    [
        ((1,), 1, 1),
        ((1,) * 3, 17, 8),
        ((5,), 7, 3),
        # 13 sentences are 8, 4 and 1; 41 units are two vectors and a part, 164 gates
        # five panels and a part; and pairs of rows of bfloat16 with one left over.
        ((5, 1, 3, 5, 2, 4, 5, 5, 1, 1, 2, 3, 4), 41, 9),
    ],
)
def test_odd_sizes_and_what_is_left_of_whole_blocks(
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
    error, name = largest_error(tf, stack, lengths, dtype)
    assert error <= TOLERANCES[dtype], name


@pytest.mark.parametrize("words", [test_cross_entropy.N, None])
def test_loss_and_gradients_are_tensorflows(tf, taken, words):
    given = test_cross_entropy.arguments(tf, scale=4.0)
    sizes = [
        [words if size == test_cross_entropy.N else size for size in each.shape]
        for each in given
    ]
    signature = [tf.TensorSpec(shape, each.dtype) for shape, each in zip(sizes, given)]
    total, value_and_gradients = (
        test_cross_entropy.total,
        test_cross_entropy.value_and_gradients,
    )
    ours = tf.function(
        lambda *args: value_and_gradients(tf, total, *args),
        input_signature=signature,
        autograph=False,
    )
    want = value_and_gradients(
        tf, lambda *args: test_cross_entropy.stock(tf, *args), *given
    )
    test_cross_entropy.assert_close(ours(*given), want, rtol=2e-6)


@pytest.mark.parametrize(
    "dtype, smoothing",
    [("float32", 0.0), ("float32", 0.3), ("bfloat16", 0.0), ("bfloat16", 0.3)],
)
def test_losses_of_any_logits(tf, taken, dtype, smoothing):
    """Far apart, one NaN, all equal, a label that is no word; more words than a vector has lanes."""
    from rnn_scaling.models.extension import operators

    def ours(logits, labels):
        """Of logits as they are, by a projection that changes nothing."""
        return operators.load().rnn_scaling_loss(
            logits, tf.eye(37, dtype=dtype), tf.zeros([0]), labels, smoothing
        )

    labels = np.array([36, 0, 5])
    logits = np.random.default_rng(0).normal(size=(3, 37)).astype(np.float32)
    logits[0, 3], logits[1, 0], logits[2, 36] = 300.0, 10_000.0, np.nan
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
    np.testing.assert_array_equal(
        ours(tf.zeros([3, 37], dtype), np.array([0, 1, 36])).is_right, [1, 0, 0]
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="each label"):
        ours(tf.cast(logits, dtype), np.array([0, 1, 37]))


def test_no_steps_and_no_sentences_have_gradients_of_zeros(tf, taken):
    from rnn_scaling.models.extension import operators

    ours = operators.load()
    for steps, batch in [
        (3, 5),
        (0, 5),
        (3, 0),
    ]:  # memory that the first one leaves is no zeros
        x, kernel, bias = (
            tf.ones(shape) for shape in ([steps, batch, 7], [12, 20], [20])
        )
        c, lengths = tf.ones([batch, 5]), tf.fill([batch], steps)
        made = ours.rnn_scaling_lstm(x, kernel, bias, c, c, lengths)
        d = ours.rnn_scaling_lstm_grad(
            *(x, kernel, c, c, lengths),
            *made[:3],
            tf.ones_like(made.outputs),
            tf.ones_like(c),
            tf.ones_like(c),
        )
        assert (
            bool(tf.reduce_any(d.d_kernel != 0))
            == bool(tf.reduce_any(d.d_bias != 0))
            == (steps * batch > 0)
        )


def test_operators_are_taken_only_where_they_were_built_and_one_thread_computes(
    tf, library, monkeypatch, tmp_path
):
    from rnn_scaling.models.extension import operators

    monkeypatch.delenv(operators.SWITCH)
    threads = [1]
    monkeypatch.setattr(
        tf.config.threading, "get_intra_op_parallelism_threads", lambda: threads[0]
    )
    assert operators.usable("float32") == (operators.instruction_set() is not None)
    assert not operators.usable("float16")
    threads[0] = 2
    assert not operators.usable("float32")
    threads[0] = 1
    monkeypatch.setenv(operators.SWITCH, "off")
    assert not operators.usable("float32")
    monkeypatch.delenv(operators.SWITCH)
    monkeypatch.setattr(operators, "FOLDER", tmp_path)
    assert not operators.usable("float32")


def test_the_record_names_what_computes(tf, library, monkeypatch):
    """float16 is computed in float32; TensorFlow's operators compute where several threads do."""
    from rnn_scaling.models.extension import operators

    threads = [1]
    monkeypatch.setattr(
        tf.config.threading, "get_intra_op_parallelism_threads", lambda: threads[0]
    )
    monkeypatch.setenv(operators.SWITCH, "off")
    assert operators.name_for("float32") == operators.STOCK
    monkeypatch.delenv(operators.SWITCH)
    best = operators.instruction_set()
    assert [
        operators.name_for(dtype) for dtype in ("float32", "bfloat16", "float16")
    ] == [best or operators.STOCK] * 3
    threads[0] = 2
    assert operators.name_for("float32") == operators.STOCK


@pytest.fixture
def copied(library, monkeypatch, tmp_path):
    """The library alone in a folder, as of a wheel, where nothing has tested it; skips without AVX2."""
    from rnn_scaling.models.extension import operators

    monkeypatch.delenv(operators.SWITCH, raising=False)
    if not operators.instruction_set():
        pytest.skip("the processor has no AVX2")
    here, ours = tmp_path / operators.library_file().name, operators.load()
    here.symlink_to(operators.library_file().resolve())
    monkeypatch.setattr(operators, "FOLDER", tmp_path)
    monkeypatch.setattr(
        operators, "_operators", lambda file: ours
    )  # which TensorFlow has in one library only
    return here


def results_of(library):
    return sorted(
        path.name.removeprefix(f"{library.name}.")
        for path in library.parent.glob("*.tested")
    )


@pytest.mark.parametrize("variant", ["avx512_bf16", "avx512", "avx2"])
def test_each_instruction_set_is_tested_once_before_it_is_used(
    tf, copied, monkeypatch, variant
):
    """Inside a graph and under a tape, too."""
    from rnn_scaling.models import operators_check
    from rnn_scaling.models.extension import operators

    monkeypatch.setenv(operators.SWITCH, variant)
    calls, really = [], operators_check.failure
    monkeypatch.setattr(operators_check, "failure", lambda: calls.append(1) or really())
    if operators._library(copied).rnn_scaling_use(variant.encode()) is None:
        assert operators.instruction_set() is None and not calls, (
            "the processor does not have it"
        )
        return
    with tf.Graph().as_default(), tf.GradientTape():
        assert operators.instruction_set() == variant
    operators.test.cache_clear()  # another process
    assert operators.instruction_set() == variant
    assert (len(calls), results_of(copied)) == (1, [f"{variant}.tested"])


@pytest.mark.parametrize("is_read_only", [False, True])
def test_operators_that_differ_are_not_used(
    tf, copied, monkeypatch, capsys, is_read_only
):
    from rnn_scaling.models import operators_check
    from rnn_scaling.models.extension import operators

    monkeypatch.setattr(operators_check, "TOLERANCES", {"float32": 1e-12})
    operators._warn_once.cache_clear()
    if is_read_only:
        monkeypatch.setattr(
            operators.library, "write_result", lambda *args: os.mkdir("/proc/none")
        )
    assert operators.instruction_set() is None and operators.instruction_set() is None
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1 and "lstm float32" in warning
    assert bool(results_of(copied)) != is_read_only
    monkeypatch.setattr(operators_check, "TOLERANCES", {"float32": 1.0})
    operators.test.cache_clear()
    assert (operators.instruction_set() is None) != is_read_only, (
        "what was kept holds for the next process"
    )


def test_a_shortage_of_memory_while_they_are_tested_is_not_kept(
    tf, copied, monkeypatch, capsys
):
    from rnn_scaling.models import operators_check
    from rnn_scaling.models.extension import operators

    def short():
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")

    with monkeypatch.context() as patched:
        patched.setattr(operators_check, "_compared", short)
        operators._warn_once.cache_clear()
        assert (
            operators.instruction_set() is None
            and "no memory" in capsys.readouterr().err
        )
        assert not results_of(copied)
    operators.test.cache_clear()
    assert operators.instruction_set()


@pytest.mark.parametrize(
    "name", ["lstm", "gru", "loss", "tied_loss", "decode", "decode_grad"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_check_sees_any_operator_that_is_wrong(tf, taken, monkeypatch, name, dtype):
    """One of its results off by a tenth, for one dtype."""
    from rnn_scaling.models import operators_check
    from rnn_scaling.models.extension import operators

    real = operators.load()

    def wrong(*args):
        made = getattr(real, f"rnn_scaling_{name}")(*args)
        field = {"decode": "contexts", "decode_grad": "d_first_c"}.get(
            name, "losses" if "loss" in name else "outputs"
        )
        return made._replace(
            **{field: getattr(made, field) * (1.1 if args[0].dtype == dtype else 1)}
        )

    class Operators:
        def __getattr__(self, asked):
            return wrong if asked == f"rnn_scaling_{name}" else getattr(real, asked)

    monkeypatch.setattr(operators, "load", Operators)
    assert dtype in operators_check.failure()
    monkeypatch.setattr(operators, "load", object)
    assert "rnn_scaling_lstm" in operators_check.failure(), (
        "a missing one is no fault of the run"
    )
    monkeypatch.undo()
    assert operators_check.failure() == ""


def build_says(monkeypatch, folder, capsys, **variables):
    from rnn_scaling.models.extension import build, operators

    monkeypatch.setattr(operators, "FOLDER", folder)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert build.main() == 0
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "cc -no-such-flag"])
def test_a_failing_compiler_is_one_line(tf, monkeypatch, tmp_path, capsys, compiler):
    line = build_says(monkeypatch, tmp_path, capsys, CC=compiler)
    assert (
        line.startswith("faster CPU kernels: not built, ")
        and compiler.split()[0] in line
    )
    assert not list(tmp_path.iterdir())


@needs_compiler
@pytest.mark.skipif(not HAS_AVX2, reason="the processor has no AVX2")
def test_random_shapes_stay_inside_their_arrays():
    """Every result is that of plain loops, too.

    AVX-512 and AVX512_BF16 run emulated on every machine, and natively if the
    processor has them.
    """
    command = [ROOT / "tools/kernels/sanitize", "6", "0", "quick"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = ran.stdout.splitlines()
    names = [line.partition(" cases")[0].rsplit(": ", 1)[0] for line in results]
    emulated = {name.rpartition(" ")[2] for name in names if "emulated" in name}
    assert emulated == {"avx512", "avx512_bf16"}
    assert len(results) == len(VARIANTS) + len(emulated)
    assert ran.stdout.count("agree") == len(results)


@needs_compiler
def test_every_instruction_of_the_sources_is_emulated():
    """An instruction for AVX-512 that emulated.h does not replace is listed by name."""
    command = [
        *("cc", "-E", "-mfma", "-mavx2", "-mno-avx512f"),
        *("-DEMULATED_AVX512", "-DEMULATED_BF16", "-DVARIANT=avx512_bf16"),
        *("-include", "tools/kernels/emulated.h", "models/extension/variant.c"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    source = ""
    missing = []
    for line in done.stdout.splitlines():
        if line.startswith("# "):
            source = line.split('"')[1]
        elif source.startswith("models/extension/"):
            missing += re.findall(r"_mm512_\w+|__builtin_ia32_\w*512\w*", line)
    assert not missing


def test_a_set_that_was_asked_for_and_not_built_is_not_silent(
    tf, monkeypatch, tmp_path
):
    from rnn_scaling.models.extension import operators

    monkeypatch.setattr(operators, "FOLDER", tmp_path)
    assert operators.choose("") == operators.choose("off") == (None, "")
    name, failure = operators.choose("avx2")
    assert name is None and "RNN_SCALING_OPERATORS=avx2" in failure


def test_a_folder_that_cannot_be_written_is_one_line(tf, monkeypatch, tmp_path, capsys):
    assert "not built, " in build_says(
        monkeypatch, tmp_path / "none", capsys, CC="true"
    )


def test_a_build_tests_and_drops_what_is_old(tf, copied, monkeypatch, capsys):
    """The library is there and is not compiled again; its test is kept, and that of an older one goes with it."""
    from rnn_scaling.models.extension import operators

    old = "kernels-2.20.0-0.so"
    for name in (old, f"{old}.avx2.tested"):
        (copied.parent / name).write_text("")
    best, _ = operators.choose("")
    line = build_says(monkeypatch, copied.parent, capsys, CC="false")
    assert "tested" in line and "not" not in line
    assert sorted(path.name for path in copied.parent.iterdir()) == [
        copied.name,
        f"{copied.name}.{best}.tested",
    ]
    identity = operators.library.identify(copied)
    kept = operators.library.result_file(copied, best)
    operators.library.write_result(kept, identity, "losses differ")
    operators.test.cache_clear()
    line = build_says(monkeypatch, copied.parent, capsys, CC="false")
    assert "not used" in line and line.endswith("losses differ")
