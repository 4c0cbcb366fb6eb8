"""TensorFlow's time to accuracy; what is asked and answered is in `tta_protocol.py`.

At its best: samples are in memory, and an epoch is one `tf.function`, so that no step returns to Python. Slower were, an
epoch of batches of 32: a `tf.function` for each step (6.7 s for 5.7 s), `jit_compile` for the step (8.1 s), for the step
inside the epoch (9.8 s), and for the epoch (19 s).
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from tta_protocol import MOMENTUM, RATE, TEST_BATCH, THREADS, WARM_UP, WEIGHT_DECAY, answer_requests


def lenet():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            layers.Conv2D(6, 5, activation="relu"),
            layers.MaxPool2D(),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPool2D(),
            layers.Flatten(),
            layers.Dense(120, activation="relu"),
            layers.Dense(84, activation="relu"),
            layers.Dense(10),
        ]
    )


class Trainer:
    def __init__(self, mnist):
        tf.config.threading.set_intra_op_parallelism_threads(THREADS)
        tf.config.threading.set_inter_op_parallelism_threads(THREADS)
        self.images, self.test_images = (
            tf.constant(images.reshape(-1, 28, 28, 1)) for images in (mnist.images, mnist.test_images)
        )
        self.labels, self.test_labels = (
            tf.constant(labels, tf.int32) for labels in (mnist.labels, mnist.test_labels)
        )

    def start(self, batch, seed):
        tf.keras.utils.set_random_seed(seed)
        self.net = lenet()
        weights = self.net.trainable_variables
        moments = [tf.Variable(tf.zeros_like(weight)) for weight in weights]

        def step(indices):
            images, labels = tf.gather(self.images, indices), tf.gather(self.labels, indices)
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self.net(images, training=True))
                loss = tf.reduce_mean(losses)
            # As PyTorch does it: Keras' own weight decay is another one.
            for weight, moment, gradient in zip(weights, moments, tape.gradient(loss, weights)):
                moment.assign(MOMENTUM * moment + gradient + WEIGHT_DECAY * weight)
                weight.assign_sub(RATE * moment)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
        def steps(order):
            for first in tf.range(0, tf.shape(order)[0], batch):
                step(order[first : first + batch])

        @tf.function(input_signature=[])
        def right():
            count = 0
            for first in tf.range(0, len(self.test_labels), TEST_BATCH):
                guesses = tf.argmax(self.net(self.test_images[first : first + TEST_BATCH]), 1, tf.int32)
                hits = guesses == self.test_labels[first : first + TEST_BATCH]
                count += tf.reduce_sum(tf.cast(hits, tf.int32))
            return count

        self.steps, self.right = steps, right
        first_weights = [weight.numpy() for weight in weights]
        steps(tf.range(WARM_UP * batch))
        right()
        for weight, moment, first in zip(weights, moments, first_weights):
            weight.assign(first)
            moment.assign(tf.zeros_like(moment))

    def epoch(self):
        self.steps(tf.random.shuffle(tf.range(len(self.labels))))

    def accuracy(self):
        return int(self.right()) / len(self.test_labels)


answer_requests(Trainer)
