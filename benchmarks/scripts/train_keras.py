"""Train a small GRU language model with Keras on workers of TensorFlow.

Each worker computes its share of the mean loss over the words of all workers.
MultiWorkerMirroredStrategy adds the gradients.
"""

import os

import keras
import numpy as np
import tensorflow as tf

WORDS, UNITS, SENTENCES, BATCH, LENGTH, STEPS = 37, 20, 72, 12, 10, 20
rank = int(os.environ.get("RANK", "0"))
world = int(os.environ.get("WORLD_SIZE", "1"))
strategy = tf.distribute.get_strategy()
if world > 1:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

random = np.random.default_rng(1)
sentences = random.integers(1, WORDS, (SENTENCES, LENGTH))
lengths = random.integers(3, LENGTH + 1, SENTENCES)
sentences[np.arange(LENGTH) >= lengths[:, None]] = 0


def batches(_):
    """Return this worker's batches of all steps."""
    parts = []
    for step in range(STEPS):
        epoch, place = divmod(step, SENTENCES // BATCH)
        order = np.random.default_rng([5, epoch]).permutation(SENTENCES)
        parts.append(sentences[order[place * BATCH : (place + 1) * BATCH][rank::world]])
    return tf.data.Dataset.from_tensor_slices(np.stack(parts))


with strategy.scope():
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((LENGTH - 1,), dtype="int32"),
            keras.layers.Embedding(WORDS, UNITS),
            keras.layers.GRU(UNITS, return_sequences=True),
            keras.layers.Dense(WORDS),
        ]
    )
    optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
    optimizer.build(model.trainable_variables)


def train(x):
    targets = x[:, 1:]
    is_word = tf.cast(targets > 0, tf.float32)
    context = tf.distribute.get_replica_context()
    words = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(is_word))
    with tf.GradientTape() as tape:
        logits = model(tf.cast(x[:, :-1], tf.int32), training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
        loss = tf.reduce_sum(losses * is_word) / words
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def train_everywhere(x):
    return strategy.run(train, args=(x,))


for x in strategy.distribute_datasets_from_function(batches):
    loss = train_everywhere(x)
if rank == 0:
    print("loss", float(strategy.experimental_local_results(loss)[0]))
