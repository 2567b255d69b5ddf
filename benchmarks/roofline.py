"""`python -m benchmarks.roofline`: a step of the CIFAR-100 ResNet18 in the paper's sizes, predicted for a stated card.

No card is needed or asked. Operations and bytes are counted from the network and from drawn populations. The predicted
time is that of a roofline: each layer takes the longer of its arithmetic at the card's peak and its memory traffic at
the card's bandwidth. It leaves out launches, small batches, planning and what kernels lose against the peak, so that it
is a lower bound and not an estimate of what will be measured.
"""

import argparse
from dataclasses import dataclass

from torch import Tensor

from benchmarks.arithmetic import layer_costs, nodes_of_layers
from benchmarks.workloads import PI, Workload
from lws_lightning.networks import BaseNetwork, build_network

__all__ = ["CARDS", "Card", "StepCount", "count_step"]

RESNET = Workload("resnet18_cifar100", (3, 32, 32), (5,) * 20, copies=20)


@dataclass(frozen=True)
class Card:
    """A card's peaks by its data sheet, without sparsity.

    Attributes:
        flops: For each precision, a second; a multiply-add is two.
        bandwidth: Bytes a second.
    """

    flops: dict[str, float]
    bandwidth: float


CARDS = {
    "H100 SXM": Card({"float32": 67e12, "bf16-mixed": 989e12}, 3.35e12),
    "A100 SXM": Card({"float32": 19.5e12, "bf16-mixed": 312e12}, 2.04e12),
}


@dataclass(frozen=True)
class StepCount:
    """What a step does.

    Attributes:
        multiply_adds: Of its convolutions.
        bytes: It reads and writes.
        seconds: By the roofline.
        kernels: Convolutions launched, forward and back.
    """

    multiply_adds: float
    bytes: float
    seconds: float
    kernels: int


def count_step(
    workload: Workload, base: BaseNetwork, nes: Tensor, sgd: Tensor, card: Card, precision: str
) -> StepCount:
    """Counts a step and predicts its time.

    Memory traffic of a layer: forward, every module writes its output and the next one reads it; backward, it reads
    upstream gradient and saved input and writes a gradient, three times as many values; each copy's weights are read
    once forward and twice back, and their gradients written once. Adam reads and writes weight, gradient and two
    moments of every copy, used or not: seven values of four bytes. Activations are half as large in bf16. The additions
    of the shortcuts and the heads are left out.
    """
    width = 4 if precision == "float32" else 2
    costs = layer_costs(base, workload.image_shape)
    macs = traffic = seconds = 0.0
    kernels = 0
    layers = zip(base.layers, costs, nodes_of_layers(base, nes), nodes_of_layers(base, sgd), strict=True)
    for number, (layer, cost, (nes_nodes, nes_copies), (sgd_nodes, sgd_copies)) in enumerate(layers):
        images = workload.batch_size * cost.multiply_adds
        layer_macs = images * (nes_nodes + sgd_nodes * (2 if number == 0 else 3))
        values = workload.batch_size * cost.activations * (2 * nes_nodes + 5 * sgd_nodes)
        layer_bytes = width * (values + cost.parameters * (nes_copies + 4 * sgd_copies))
        copies = workload.copies if layer.learned else 1
        adam = 7 * 4 * cost.parameters * copies
        seconds += max(2 * layer_macs / card.flops[precision], layer_bytes / card.bandwidth) + adam / card.bandwidth
        macs, traffic = macs + layer_macs, traffic + layer_bytes + adam
        convolutions = sum(type(module).__name__ == "Conv2d" for module in layer.block.modules())
        kernels += convolutions * (nes_copies + 3 * sgd_copies)
    return StepCount(macs, traffic, seconds, kernels)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5, help="steps over whose populations the counts are averaged")
    draws = parser.parse_args().draws
    base = build_network(RESNET.network, RESNET.image_shape)
    print(f"{RESNET}: counted, and PREDICTED by a roofline; nothing of this was measured on a card")
    print(f"{'card':<10}{'precision':<12}{'pi':<11}{'TMAC':>7}{'GB':>7}{'kernels':>9}{'>= ms':>8}{'arithmetic':>12}")
    for name, card in CARDS.items():
        for precision in card.flops:
            for pi in PI:
                populations = RESNET.populations(pi, draws)
                counts = [count_step(RESNET, base, *drawn, card, precision) for drawn in populations]
                macs = sum(count.multiply_adds for count in counts) / draws
                traffic = sum(count.bytes for count in counts) / draws
                seconds = sum(count.seconds for count in counts) / draws
                kernels = sum(count.kernels for count in counts) / draws
                share = 2 * macs / card.flops[precision] / seconds
                print(
                    f"{name:<10}{precision:<12}{pi:<11}{macs / 1e12:>7.2f}{traffic / 1e9:>7.1f}{kernels:>9.0f}"
                    f"{seconds * 1e3:>8.1f}{share:>12.0%}"
                )


if __name__ == "__main__":
    main()
