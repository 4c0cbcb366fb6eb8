"""Writes what PyTorch computes for the models of `weft_gpu::models`, for `gpu-bridge/tests/torch.rs` to compare with.

    scripts/torch-venv.sh
    ~/.cache/weft/torch/bin/python scripts/torch_values.py gpu-bridge/tests/stored [MODEL ...]

One file a model: the losses of its first SGD steps from the initial weights and data that `torch_models.py` describes
(dropout off), some gradients of the first step, and the running statistics after the last. All is computed in float64
from float32 weights and data, so that what is stored is the true value and not one more rounding of it. What float32
makes of the same is told on standard error: no other float32 implementation can be asked to come closer than that.
"""
import json
import pathlib
import sys

import torch

from torch_models import MODELS, data, initialize, loss_of, optimizer

# Model: batch, steps, learning rate, parameters whose first gradient is stored. The rates are such that the losses stay
# large enough to be compared, and that float32 does not make of five steps something else than float64 does.
CASES = {
    "logreg": (8, 5, 0.01, ["weight", "bias"]),
    "mlp": (8, 5, 0.01, ["0.weight", "4.weight", "10.weight", "10.bias"]),
    "lenet": (4, 5, 0.01, ["0.weight", "3.weight", "3.bias", "7.weight", "11.bias"]),
    "resnet18": (
        4,
        5,
        0.0001,
        ["conv1.weight", "layer3.0.bn1.weight", "layer2.0.downsample.0.weight", "layer4.1.bn2.bias", "fc.weight"],
    ),
    "resnet34": (4, 5, 0.00001, ["conv1.weight", "layer3.5.conv2.weight", "fc.bias"]),
    "resnet32": (4, 5, 0.001, ["conv1.weight", "layer3.4.conv2.weight", "fc.bias"]),
    "resnet50": (8, 5, 0.000003, ["conv1.weight", "layer3.5.conv2.weight", "fc.bias"]),
    "cifar-cnn": (4, 5, 0.01, ["conv1.weight", "conv2.bias", "fc1.weight", "fc2.bias"]),
    "mobilenetv3s": (
        8,
        5,
        0.003,
        [
            "features.0.0.weight",
            "features.4.block.1.0.weight",
            "features.5.block.2.fc1.weight",
            "features.12.1.weight",
            "classifier.3.bias",
        ],
    ),
    "squeezenet": (
        2,
        5,
        0.01,
        ["features.0.weight", "features.3.squeeze.weight", "features.12.expand3x3.weight", "classifier.1.bias"],
    ),
    "vgg11": (2, 5, 0.001, ["0.0.weight", "0.8.weight", "0.18.bias", "2.weight"]),
    "bert-small": (
        2,
        5,
        0.00003,
        [
            "word.weight",
            "place.weight",
            "body.layers.0.self_attn.out_proj.weight",
            "body.layers.1.linear1.bias",
            "body.layers.2.norm1.weight",
            "head.weight",
        ],
    ),
}


def digest(tensor):
    tensor = tensor.detach().double()
    return {"sum": tensor.sum().item(), "norm": tensor.norm().item()}


def train(model, dtype):
    batch, steps, rate, watched = CASES[model]
    net = initialize(MODELS[model]()).to(dtype)
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0
    inputs, targets = data(model, batch)
    if inputs.is_floating_point():
        inputs = inputs.to(dtype)
    if targets.is_floating_point():
        targets = targets.to(dtype)
    descent = optimizer(net, rate)
    losses, gradients = [], []
    for step in range(steps):
        descent.zero_grad()
        loss = loss_of(net(inputs), targets)
        loss.backward()
        if step == 0:
            parameters = dict(net.named_parameters())
            gradients = [{"name": name, **digest(parameters[name].grad)} for name in watched]
        descent.step()
        losses.append(loss.item())
    buffers = [(name, buffer) for name, buffer in net.named_buffers() if "running" in name]
    statistics = [{"name": name, **digest(buffer)} for name, buffer in buffers[:2] + buffers[-2:]]
    return {
        "model": model,
        "batch": batch,
        "rate": rate,
        "losses": losses,
        "gradients": gradients,
        "statistics": statistics,
    }


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for model in sys.argv[2:] or CASES:
        values = train(model, torch.float64)
        (folder / f"{model}.json").write_text(json.dumps(values, indent=1) + "\n")
        rounded = train(model, torch.float32)
        apart = [abs(a - b) / abs(b) for a, b in zip(rounded["losses"], values["losses"])]
        print(model, values["losses"], "float32 off by", " ".join(f"{x:.0e}" for x in apart), file=sys.stderr)
        norms = [abs(a["norm"] / b["norm"] - 1) for a, b in zip(rounded["gradients"], values["gradients"])]
        print("   gradients' norms off by", " ".join(f"{x:.0e}" for x in norms), file=sys.stderr)


main()
