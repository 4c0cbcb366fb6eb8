"""A loop of PyTorch runs: as many trainings of a small perceptron, one after another, as a study has trials.

Reads one JSON object a line: {"runs": 128, "epochs": 5, "batch": 64, "samples": 1438, "features": 64, "classes": 10,
"layers": 2, "width": 64, "threads": 2}
Answers each with one:        {"seconds": 12.3}

Data is random and in memory before the clock starts; each run has a network and an optimizer of its own, and is validated
after each epoch on a quarter as many samples.
"""
import json
import sys
import time

import torch


def network(request):
    layers, width = [], request["features"]
    for _ in range(request["layers"]):
        layers += [torch.nn.Linear(width, request["width"]), torch.nn.ReLU()]
        width = request["width"]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, request["classes"]))


def train(request, inputs, labels):
    net = network(request)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()
    batch, held = request["batch"], len(inputs) // 4
    for _ in range(request["epochs"]):
        order = torch.randperm(len(inputs))
        for start in range(0, len(inputs), batch):
            chosen = order[start : start + batch]
            optimizer.zero_grad()
            loss_of(net(inputs[chosen]), labels[chosen]).backward()
            optimizer.step()
        with torch.no_grad():
            (net(inputs[:held]).argmax(1) == labels[:held]).float().mean().item()


def main():
    torch.manual_seed(0)
    for line in sys.stdin:
        request = json.loads(line)
        torch.set_num_threads(request["threads"])
        inputs = torch.rand(request["samples"], request["features"])
        labels = torch.randint(request["classes"], (request["samples"],))
        train({**request, "epochs": 1}, inputs, labels)
        start = time.perf_counter()
        for _ in range(request["runs"]):
            train(request, inputs, labels)
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


main()
