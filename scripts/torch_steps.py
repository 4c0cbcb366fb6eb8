"""How fast PyTorch trains the models, asked again and again: one process, so that rounds can alternate with ours.

Reads one JSON object a line: {"model": "lenet", "batch": 16, "threads": 2, "seconds": 1.0}
Answers each with one:        {"samples_per_s": 12345.6, "steps": 789}

A step is forward, backward and the SGD update, on data that is already in memory. The last model asked for stays, so
only its first round builds it and warms it up.
"""
import json
import sys
import time

import torch

from torch_models import MODELS, data, loss_of, optimizer

WARM_UP = 3
LEAST_STEPS = 2


class Training:
    def __init__(self, model, batch):
        self.net = MODELS[model]()
        self.inputs, self.targets = data(model, batch)
        self.optimizer = optimizer(self.net)
        self.batch = batch

    def step(self):
        self.optimizer.zero_grad()
        loss_of(self.net(self.inputs), self.targets).backward()
        self.optimizer.step()

    def measure(self, seconds):
        steps, start = 0, time.perf_counter()
        while steps < LEAST_STEPS or time.perf_counter() - start < seconds:
            self.step()
            steps += 1
        return {"samples_per_s": steps * self.batch / (time.perf_counter() - start), "steps": steps}


def main():
    torch.manual_seed(0)
    asked, training = None, None
    for line in sys.stdin:
        request = json.loads(line)
        torch.set_num_threads(request["threads"])
        wanted = request["model"], request["batch"]
        if wanted != asked:
            # The old one goes before the new one comes: two large models need not fit at once.
            training = None
            asked, training = wanted, Training(*wanted)
            for _ in range(WARM_UP):
                training.step()
        print(json.dumps(training.measure(request["seconds"])), flush=True)


main()
