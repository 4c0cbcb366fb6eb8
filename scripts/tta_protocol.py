"""Time to accuracy on MNIST: what the frameworks share, so that only the framework differs.

    python scripts/tta_torch.py FOLDER        with the four idx files of MNIST in it

Reads one JSON object a line: {"batch": 32, "seed": 1, "goal": 0.99, "epochs": 12, "seconds": 60.0}
Answers each with one:        {"seconds": 34.5, "accuracies": [0.97, 0.985, 0.9902]}

`seconds` counts from the first step to the end of the validation that reached the goal; reading data, importing and
compiling are done by then. `accuracies` has the test accuracy after each epoch: the last of them is at least the goal, or
it was not reached within so many epochs, or so many seconds.
"""
import json
import pathlib
import sys
import time

import numpy

RATE, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 1e-4
THREADS = 2
# Samples that are tested at once.
TEST_BATCH = 500
# Steps before the clock starts, on a model that is thrown away.
WARM_UP = 50


def idx(path):
    """The numbers of an idx file of bytes."""
    content = path.read_bytes()
    axes = content[3]
    sizes = numpy.frombuffer(content, ">u4", axes, 4)
    return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * axes).reshape(sizes)


class Mnist:
    """Images as rows of pixels, standardised by the mean and the deviation of those to train on, as Weft does it."""

    def __init__(self, folder):
        images, tests = (idx(folder / f"{part}-images-idx3-ubyte") for part in ("train", "t10k"))
        mean, deviation = images.mean(dtype=numpy.float64), images.std(dtype=numpy.float64)

        def standardised(pixels):
            return ((pixels.astype(numpy.float32) - numpy.float32(mean)) * numpy.float32(1 / deviation)).astype("f4")

        self.images, self.test_images = standardised(images), standardised(tests)
        labels, test_labels = (idx(folder / f"{part}-labels-idx1-ubyte") for part in ("train", "t10k"))
        self.labels, self.test_labels = labels.astype(numpy.int64), test_labels.astype(numpy.int64)


def answer_requests(make):
    """`make(mnist)` gives a trainer: `start(batch, seed)` makes a fresh model that is ready to run at full speed,
    `epoch()` trains on every sample once in a new order, `accuracy()` is that of the samples to test with."""
    trainer = make(Mnist(pathlib.Path(sys.argv[1])))
    for line in sys.stdin:
        request = json.loads(line)
        trainer.start(request["batch"], request["seed"])
        accuracies, seconds, start = [], 0.0, time.perf_counter()
        while len(accuracies) < request["epochs"]:
            trainer.epoch()
            accuracies.append(float(trainer.accuracy()))
            seconds = time.perf_counter() - start
            if accuracies[-1] >= request["goal"] or seconds > request["seconds"]:
                break
        print(json.dumps({"seconds": seconds, "accuracies": accuracies}), flush=True)
