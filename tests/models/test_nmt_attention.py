"""Both attentions and GNMT v2 against networks written once more: sentence by sentence, with nothing to mask.

Tolerance: 1e-6 of the loss, and of a gradient 2e-5 of its largest entry. bfloat16 rounds the products alone: 0.1.
"""

import dataclasses

import numpy as np
import pytest

from rnn_scaling.models.config import GNMT_V2, ModelConfig

TINY = ModelConfig(
    model="nmt_attention",
    num_encoder_layers=2,
    num_decoder_layers=2,
    num_units=6,
    embedding_dim=5,
    src_vocab_size=13,
    tgt_vocab_size=13,
    forget_bias=0.6,
)
SOURCE_LENGTHS, TARGET_LENGTHS = (4, 2, 3), (1, 5, 5)
LUONG = {"attention": "luong"}
BAHDANAU = {"attention": "bahdanau"}
NORMALIZED = {"attention": "bahdanau", "normalize_attention": True, "biases_per_gate": 2}
GNMT = {"attention_architecture": "gnmt_v2", "num_encoder_layers": 4, "num_decoder_layers": 3}


def make_inputs(tf, config):
    """A network, its dense weights, embedded rows, all large enough for gradients to be seen, and a batch."""
    from rnn_scaling.models import workload, workloads
    from rnn_scaling.models.batch import Batch

    network = workloads.load("nmt_attention").build(config, "CPU")
    rng = np.random.default_rng(0)
    # Scores must differ from word to word, or rounding is all that is left of the gradients of what makes them.
    limits = {spec.name: 2.0 if spec.name.startswith("attention/") else 0.6 for spec in network.variables}
    arrays = {
        s.name: rng.uniform(-limits[s.name], limits[s.name], s.shape).astype(np.float32) for s in network.variables
    }
    assert {*workload.first_values(network.variables, 1)} == {*arrays}

    def ids(length):
        words = rng.integers(0, 13, (length, 3))
        return tf.constant(words if config.time_major else words.T)

    batch = Batch(ids(4), tf.constant(SOURCE_LENGTHS), ids(5), ids(5), tf.constant(TARGET_LENGTHS))
    rows = {name: tf.constant(arrays.pop(name)) for name in network.lookups(batch)}
    rows = {name: tf.gather(rows[name], ids) for name, ids in network.lookups(batch).items()}
    return network, {name: tf.constant(array) for name, array in arrays.items()}, rows, batch


def loss_and_gradients(tf, inputs, seed=(1, 2)):
    """As Python runs the network, step by step."""
    network, dense, rows, batch = inputs
    watched = {**dense, **rows}
    with tf.GradientTape() as tape:
        tape.watch(watched)
        loss = network.forward(dense, rows, batch, tf.constant(seed)).loss_sum
    return loss, tape.gradient(loss, watched)


def traced(tf, inputs):
    """As `loss_and_gradients`, of a graph that knows neither lengths nor the number of sentences."""

    def unknown(tensor):
        known = tensor.shape[2:] if tensor.dtype.is_floating else []
        return tf.TensorSpec([None] * (len(tensor.shape) - len(known)) + list(known), tensor.dtype)

    network, dense, rows, batch = inputs
    exactly = {name: tf.TensorSpec(w.shape, w.dtype) for name, w in dense.items()}
    signature = [exactly, {name: unknown(row) for name, row in rows.items()}, type(batch)(*map(unknown, batch))]

    @tf.function(autograph=False, input_signature=signature)
    def step(dense, rows, batch):
        loss = network.forward(dense, rows, batch, tf.constant([1, 2])).loss_sum
        watched = {**dense, **rows}
        return loss, dict(zip(watched, tf.gradients(loss, list(watched.values()))))

    return step(dense, rows, batch)


class Reference:
    """The networks of the papers, one sentence at a time."""

    def __init__(self, tf, config, dense):
        self.tf, self.config, self.weights = tf, config, dense

    def bias(self, cell):
        one = self.weights[f"{cell}/bias"]
        return one + self.weights[f"{cell}/recurrent_bias"] if self.config.biases_per_gate == 2 else one

    def step(self, cell, x, state):
        """One step of a cell: x [1, D] -> its next state, the output last."""
        tf, (c, h) = self.tf, state
        gates = tf.concat([x, h], 1) @ self.weights[f"{cell}/kernel"] + self.bias(cell)
        i, j, f, o = tf.split(gates, 4, axis=1)
        c = tf.sigmoid(f + self.config.forget_bias) * c + tf.sigmoid(i) * tf.tanh(j)
        return c, tf.sigmoid(o) * tf.tanh(c)

    def first_state(self):
        return (self.tf.zeros([1, self.config.num_units]),) * 2

    def layer(self, cell, words):
        """words, a list of [1, D] -> a list of [1, U], and the last state."""
        state, outputs = self.first_state(), []
        for x in words:
            state = self.step(cell, x, state)
            outputs.append(state[-1])
        return outputs, state

    def encode(self, words):
        """-> the memory [S, D] and each cell's last state."""
        tf, gnmt, last, layer = self.tf, self.config.attention_architecture == "gnmt_v2", [], 0
        while f"encoder/layer_{layer}/forward/kernel" in self.weights:
            outputs, state = self.layer(f"encoder/layer_{layer}/forward", words)
            last.append(state)
            if f"encoder/layer_{layer}/backward/kernel" in self.weights:
                back, state = self.layer(f"encoder/layer_{layer}/backward", words[::-1])
                last.append(state)
                outputs = [tf.concat(pair, 1) for pair in zip(outputs, back[::-1])]
            words = [x + y for x, y in zip(words, outputs)] if gnmt and layer >= 2 else outputs
            layer += 1
        return tf.concat(words, 0), last

    def attend(self, h, memory):
        """The context [1, D] of a query [1, U]."""
        tf, w = self.tf, self.weights
        keys = memory @ w["attention/memory"]
        if self.config.attention == "luong":
            scores = keys @ tf.transpose(h)
        else:
            v, added = w["attention/v"][:, None], 0.0
            if self.config.normalize_attention:
                v, added = w["attention/g"] * tf.linalg.l2_normalize(v), w["attention/bias"]
            scores = tf.tanh(h @ w["attention/query"] + keys + added) @ v
        return tf.transpose(tf.nn.softmax(scores, axis=0)) @ memory

    def decode(self, words, memory, states):
        """What the projection reads of each word, [T, U]."""
        tf, config, outputs = self.tf, self.config, []
        a = tf.zeros([1, config.num_units])
        for x in words:
            if config.attention == "bahdanau":
                a = context = self.attend(states[-1][-1], memory)
            x, following = tf.concat([x, a], 1), []
            for layer, state in enumerate(states):
                following.append(self.step(f"decoder/layer_{layer}", x, state))
                x = following[-1][-1]
            states = following
            if config.attention == "luong":
                context = self.attend(x, memory)
            a = tf.tanh(tf.concat([context, x], 1) @ self.weights["attention/output"])
            outputs.append(a)
        return tf.concat(outputs, 0)

    def decode_gnmt(self, words, memory):
        tf = self.tf
        x, _ = self.layer("decoder/layer_0", words)
        contexts = [self.attend(h, memory) for h in x]
        for layer in range(1, self.config.num_decoder_layers):
            y, _ = self.layer(f"decoder/layer_{layer}", [tf.concat(pair, 1) for pair in zip(x, contexts)])
            x = [a + b for a, b in zip(x, y)] if layer >= 2 else y
        return tf.concat(x, 0)

    def loss(self, source, target, labels):
        """Of one sentence: embedded words [S, E] and [T, E], labels [T]."""
        tf = self.tf
        memory, states = self.encode(tf.split(source, source.shape[0]))
        words = tf.split(target, target.shape[0])
        if self.config.attention_architecture == "gnmt_v2":
            logits = self.decode_gnmt(words, memory) @ self.weights["projection"] + self.weights["projection/bias"]
        else:
            logits = self.decode(words, memory, states) @ self.weights["projection"]
        return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


class OfOtherCells(Reference):
    """With the cell's own definition, which its kernels are compared with elsewhere."""

    @property
    def module(self):
        from rnn_scaling.models import unit_types

        return unit_types.load(self.config.unit_type)

    def first_state(self):
        return (self.tf.zeros([1, self.config.num_units]),) * len(self.module.STATE)

    def step(self, cell, x, state):
        specs = self.module.weights(x.shape[1], self.config.num_units)
        weights = tuple(self.weights[f"{cell}/{spec.name}"] for spec in specs)
        return self.module.step(x, state, weights, self.config.forget_bias)


def reference_loss(tf, config, dense, rows, batch):
    def by_sentence(x):
        return x if not config.time_major else tf.transpose(x, [1, 0, *range(2, len(x.shape))])

    if config.share_embedding:
        source, target = tf.split(by_sentence(rows["embedding"]), [4, 5], axis=1)
    else:
        source, target = by_sentence(rows["src_embedding"]), by_sentence(rows["tgt_embedding"])
    labels = by_sentence(batch.target_output)
    reference = (Reference if config.unit_type == "lstm" else OfOtherCells)(tf, config, dense)
    pairs = enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS))
    return tf.add_n([reference.loss(source[b, :s], target[b, :t], labels[b, :t]) for b, (s, t) in pairs])


def reference_gradients(tf, config, inputs):
    _, dense, rows, batch = inputs
    watched = {**dense, **rows}
    with tf.GradientTape() as tape:
        tape.watch(watched)
        loss = reference_loss(tf, config, dense, rows, batch)
    return loss, tape.gradient(loss, watched)


def assert_equal(got, want, tolerance=2e-5):
    """Of pairs (loss, gradients by name)."""
    (loss, gradients), (want_loss, want_gradients) = got, want
    np.testing.assert_allclose(loss, want_loss, rtol=max(1e-6, tolerance / 5))
    assert gradients.keys() == want_gradients.keys()
    for name, gradient in want_gradients.items():
        atol = tolerance * np.abs(gradient).max()
        np.testing.assert_allclose(gradients[name], gradient, rtol=0, atol=atol, err_msg=name)
        assert gradients[name].dtype == "float32" and np.any(gradient), name


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize(
    "options, run",
    [
        (LUONG, traced),
        ({**BAHDANAU, "encoder_type": "dynamic_rnn", "decoder_type": "cudnn_lstm", "time_major": False}, traced),
        ({**NORMALIZED, **GNMT, "share_embedding": True}, traced),
        ({**NORMALIZED, "direction": "uni", "share_embedding": True}, loss_and_gradients),
        ({**LUONG, "decoder_type": "dynamic_rnn", "time_major": False, "share_embedding": True}, loss_and_gradients),
        ({**NORMALIZED, "decoder_type": "dynamic_rnn"}, loss_and_gradients),
        ({**LUONG, **GNMT, "direction": "uni", "time_major": False}, loss_and_gradients),
        ({**LUONG, "unit_type": "gru"}, loss_and_gradients),
        ({**BAHDANAU, **GNMT, "unit_type": "layer_norm_lstm"}, loss_and_gradients),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_loss_and_gradients_are_those_of_the_reference_network(tf, options, run):
    config = dataclasses.replace(TINY, **options)
    inputs = make_inputs(tf, config)
    assert_equal(run(tf, inputs), reference_gradients(tf, config, inputs))


@pytest.mark.parametrize("options", [LUONG, {**NORMALIZED, **GNMT}], ids=["luong", "gnmt_v2"])
def test_bfloat16_rounds_the_products_alone(tf, options):
    config = dataclasses.replace(TINY, **options, compute_dtype="bfloat16")
    inputs = make_inputs(tf, config)
    assert_equal(loss_and_gradients(tf, inputs), reference_gradients(tf, config, inputs), tolerance=0.1)


@pytest.mark.parametrize("attention", [LUONG, BAHDANAU], ids=["luong", "bahdanau"])
def test_dropout_follows_the_seed_and_both_decoders_draw_the_same_zeros(tf, attention):
    """TensorFlow's own gradient of the loop is the reference of the one whose weights' gradients are made after it."""
    fused, plain = (
        make_inputs(tf, dataclasses.replace(TINY, **attention, dropout=0.5, decoder_type=decoder_type))
        for decoder_type in ("cudnn_lstm", "dynamic_rnn")
    )
    loss, gradients = loss_and_gradients(tf, plain)
    assert_equal(loss_and_gradients(tf, fused), (loss, gradients))
    assert float(loss_and_gradients(tf, plain, (1, 3))[0]) != float(loss)
    for name, lengths in (("src_embedding", SOURCE_LENGTHS), ("tgt_embedding", TARGET_LENGTHS)):
        inside = np.arange(gradients[name].shape[0])[:, None] < lengths
        assert 0.25 < np.mean(np.asarray(gradients[name])[inside] == 0) < 0.75, name


def test_gnmt_v2_has_its_number_of_parameters(tf):
    """90 H^2 + 74 H + 1 of the layers and the attention, 2 V H + V of embedding and classifier.

    Of the 74 H, 36 H are the second bias of each of the 9 cells' gates, which cuDNN and PyTorch have.
    """
    from rnn_scaling.models import workloads

    def parameters(**options):
        config = ModelConfig(**{**GNMT_V2, **options})
        network = workloads.load(config.model).build(config, "CPU")
        return sum(int(np.prod(spec.shape)) for spec in network.variables)

    units, words = 1024, 32_320
    assert parameters() == 160_671_297 == 90 * units**2 + 74 * units + 1 + 2 * words * units + words
    assert parameters(biases_per_gate=1) == 160_671_297 - 36 * units
    assert parameters(share_embedding=False) == 160_671_297 + words * units


def test_the_first_values_of_gnmt_v2_are_those_of_its_sources(tf):
    from rnn_scaling.models import workload, workloads

    config = dataclasses.replace(TINY, **NORMALIZED, **GNMT)
    values = workload.first_values(workloads.load(config.model).build(config, "CPU").variables, seed=1)
    assert values["attention/g"] == np.float32(6**-0.5) and values["attention/g"].shape == ()
    zeros = [name for name, value in values.items() if not value.any()]
    assert zeros == [name for name in values if name.endswith("bias")] and "attention/bias" in zeros


@pytest.mark.parametrize("model", ["nmt", "nmt_attention"])
@pytest.mark.parametrize("time_major", [True, False])
def test_one_look_up_serves_both_sides(tf, model, time_major):
    """Of words of different lengths, whose rows are here the words themselves."""
    from rnn_scaling.models import workloads

    config = dataclasses.replace(TINY, model=model, share_embedding=True, time_major=time_major)
    *_, batch = make_inputs(tf, dataclasses.replace(config, model="nmt_attention"))
    network = workloads.load(model).build(config, "CPU")
    ((name, ids),) = network.lookups(batch).items()
    assert [(spec.name, spec.shape) for spec in network.variables if spec.kind == "embedding"] == [(name, (13, 5))]
    source, target = network.embedded({name: ids[..., None]}, batch)
    np.testing.assert_array_equal(source[..., 0], batch.source)
    np.testing.assert_array_equal(target[..., 0], batch.target_input)
