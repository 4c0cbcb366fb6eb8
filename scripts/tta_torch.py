"""PyTorch's time to accuracy; what is asked and answered is in `tta_protocol.py`.

At its best, as far as eager mode goes: samples are tensors in memory and batches are taken from them by index (no loader,
no processes), the optimizer is the fused one.
"""
import torch
from torch import nn

from torch_models import lenet
from tta_protocol import MOMENTUM, RATE, TEST_BATCH, THREADS, WARM_UP, WEIGHT_DECAY, answer_requests


class Trainer:
    def __init__(self, mnist):
        torch.set_num_threads(THREADS)
        self.images, self.test_images = (
            torch.from_numpy(images).reshape(-1, 1, 28, 28) for images in (mnist.images, mnist.test_images)
        )
        self.labels, self.test_labels = torch.from_numpy(mnist.labels), torch.from_numpy(mnist.test_labels)

    def start(self, batch, seed):
        self.batch = batch
        self.reset(seed)
        self.steps(torch.arange(WARM_UP * batch))
        self.accuracy()
        self.reset(seed)

    def reset(self, seed):
        torch.manual_seed(seed)
        self.net = lenet()
        self.optimizer = torch.optim.SGD(
            self.net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=True
        )

    def epoch(self):
        self.steps(torch.randperm(len(self.labels)))

    def steps(self, order):
        for indices in order.split(self.batch):
            self.optimizer.zero_grad()
            output = self.net(self.images.index_select(0, indices))
            nn.functional.cross_entropy(output, self.labels.index_select(0, indices)).backward()
            self.optimizer.step()

    @torch.inference_mode()
    def accuracy(self):
        parts = zip(self.test_images.split(TEST_BATCH), self.test_labels.split(TEST_BATCH))
        right = sum((self.net(images).argmax(1) == labels).sum().item() for images, labels in parts)
        return right / len(self.test_labels)


answer_requests(Trainer)
