"""The models of `weft_gpu::models` in PyTorch: what the benchmark runs against, and where the stored values come from.

`MODELS[name]` is a function that gives the network; `data(name, batch)` gives inputs and targets by the formula below.

Initial weights and data follow a formula that Rust reproduces bit for bit (`gpu-bridge/src/models/initial.rs`):

    hash(stream, element), for seed 0: 32-bit `x = element * 0x9E3779B1 + (stream + 1) * 0x85EBCA77`, then mixed:
        x ^= x >> 16; x *= 0x7FEB352D; x ^= x >> 15; x *= 0x846CA68B; x ^= x >> 16
    uniform(stream, element) = hash / 2^31 - 1, in [-1, 1), as a float64

    parameter number n (in the order of `named_parameters`), element i, computed in float64 and rounded to float32:
        two axes or more:            uniform(n, i) * sqrt(3 / fan_in), fan_in being the product of all axes but the first
        one axis, named `..weight`:  1 + uniform(n, i) / 10
        one axis, otherwise:         uniform(n, i) / 10
    (`in_proj_weight` and `in_proj_bias` of attention are three parameters each here: query, key, value.)

    inputs:  uniform(1000001, i) * sqrt(3), or hash(1000001, i) modulo 2 or the number of words
    targets: hash(1000002, i) modulo the number of classes
"""
import math
from collections import OrderedDict

import numpy
import torch
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock

INPUTS, TARGETS = 1_000_001, 1_000_002
TOKENS, WORDS = 128, 30_522


def logreg():
    return nn.Linear(28, 1)


def mlp():
    sizes = [20] + 5 * [100]
    hidden = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(100, 1))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def small_resnet(make):
    """For small images: a 3x3 stem, and no pooling after it."""
    net = make(num_classes=10)
    net.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


def resnet18():
    return small_resnet(torchvision.models.resnet18)


def resnet34():
    return small_resnet(torchvision.models.resnet34)


def resnet50():
    return small_resnet(torchvision.models.resnet50)


def resnet32():
    """The narrow one for CIFAR-10: three stages of five blocks, 16 to 64 channels wide."""
    net = small_resnet(lambda num_classes: torchvision.models.ResNet(BasicBlock, [5, 5, 5, 1], num_classes))
    net.inplanes = 16
    net.conv1 = nn.Conv2d(3, 16, kernel_size=3, stride=1, padding=1, bias=False)
    net.bn1 = nn.BatchNorm2d(16)
    net.layer1 = net._make_layer(BasicBlock, 16, 5)
    net.layer2 = net._make_layer(BasicBlock, 32, 5, stride=2)
    net.layer3 = net._make_layer(BasicBlock, 64, 5, stride=2)
    net.layer4 = nn.Identity()
    net.fc = nn.Linear(64, 10)
    return net


def cifar_cnn():
    """Feng's: two convolutions, two maxima, two local response normalizations, two linear layers."""
    # The alpha of PyTorch is of the sum over a window, divided by its size.
    norm = nn.LocalResponseNorm(9, alpha=1e-3, beta=0.75, k=1.0)
    halves = nn.MaxPool2d(3, stride=2, padding=1)
    layers = [
        ("conv1", nn.Conv2d(3, 64, 5, padding=2)),
        ("relu1", nn.ReLU()),
        ("pool1", halves),
        ("norm1", norm),
        ("conv2", nn.Conv2d(64, 64, 5, padding=2)),
        ("relu2", nn.ReLU()),
        ("norm2", norm),
        ("pool2", halves),
        ("flatten", nn.Flatten()),
        ("fc1", nn.Linear(64 * 8 * 8, 384)),
        ("relu3", nn.ReLU()),
        ("fc2", nn.Linear(384, 10)),
    ]
    return nn.Sequential(OrderedDict(layers))


def mobilenetv3s():
    return torchvision.models.mobilenet_v3_small(num_classes=10)


def squeezenet():
    return torchvision.models.squeezenet1_1(num_classes=10)


def vgg11():
    """For small images: what is left of one at the end is a single place, and one linear layer classifies it."""
    return nn.Sequential(torchvision.models.vgg11(num_classes=10).features, nn.Flatten(), nn.Linear(512, 10))


class BertSmall(nn.Module):
    """An encoder of 4 layers, 512 wide, 8 heads; the first place of the text is classified."""

    def __init__(self, width=512, layers=4, heads=8):
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.place = nn.Embedding(TOKENS, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=4 * width, dropout=0.1, activation="gelu", batch_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 2)

    def forward(self, words):
        places = torch.arange(words.shape[1])
        return self.head(self.body(self.word(words) + self.place(places))[:, 0])


MODELS = {
    "logreg": logreg,
    "mlp": mlp,
    "lenet": lenet,
    "resnet18": resnet18,
    "resnet32": resnet32,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "cifar-cnn": cifar_cnn,
    "mobilenetv3s": mobilenetv3s,
    "squeezenet": squeezenet,
    "vgg11": vgg11,
    "bert-small": BertSmall,
}

INPUT_SHAPES = {"logreg": (28,), "mlp": (20,), "lenet": (1, 28, 28), "bert-small": (TOKENS,)}


def hashes(stream, count):
    mask = numpy.uint64(0xFFFF_FFFF)
    x = numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B1)
    x = (x + numpy.uint64((stream + 1) * 0x85EBCA77 & 0xFFFF_FFFF)) & mask
    x ^= x >> numpy.uint64(16)
    x = (x * numpy.uint64(0x7FEB352D)) & mask
    x ^= x >> numpy.uint64(15)
    x = (x * numpy.uint64(0x846CA68B)) & mask
    return x ^ (x >> numpy.uint64(16))


def uniform(stream, count):
    return hashes(stream, count).astype(numpy.float64) / 2.0**31 - 1.0


def initialize(net):
    """Sets all parameters by the formula."""
    number = 0
    for name, parameter in net.named_parameters():
        for part in parameter.data.chunk(3) if "in_proj" in name else [parameter.data]:
            values = uniform(number, part.numel())
            if part.dim() >= 2:
                values = values * math.sqrt(3.0 / math.prod(part.shape[1:]))
            elif name.endswith("weight"):
                values = 1.0 + values / 10.0
            else:
                values = values / 10.0
            part.copy_(torch.from_numpy(values.astype(numpy.float32)).reshape(part.shape))
            number += 1
    return net


def data(name, batch):
    """Inputs and targets by the formula."""
    shape = (batch, *INPUT_SHAPES.get(name, (3, 32, 32)))
    count = math.prod(shape)
    if name == "bert-small":
        inputs = (hashes(INPUTS, count) % numpy.uint64(WORDS)).astype(numpy.int64)
    elif name == "mlp":
        inputs = (hashes(INPUTS, count) % numpy.uint64(2)).astype(numpy.float32)
    else:
        inputs = (uniform(INPUTS, count) * math.sqrt(3.0)).astype(numpy.float32)
    if name in ("logreg", "mlp"):
        targets = (hashes(TARGETS, batch) % numpy.uint64(2)).astype(numpy.float32).reshape(batch, 1)
    else:
        classes = 2 if name == "bert-small" else 10
        targets = (hashes(TARGETS, batch) % numpy.uint64(classes)).astype(numpy.int64)
    return torch.from_numpy(inputs.reshape(shape)), torch.from_numpy(targets)


def loss_of(output, targets):
    if targets.is_floating_point():
        return nn.functional.binary_cross_entropy_with_logits(output, targets)
    return nn.functional.cross_entropy(output, targets)


def optimizer(net, rate=0.01):
    return torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
