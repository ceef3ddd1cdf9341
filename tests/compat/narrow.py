# SPDX-License-Identifier: Apache-2.0
"""torchvision's ResNet with bottlenecks, of any width: its own stages, rebuilt on another number of channels."""
import torch
import torchvision


def resnet(width, blocks, classes):
    block = torchvision.models.resnet.Bottleneck
    network = torchvision.models.ResNet(block, blocks, num_classes=classes)
    network.inplanes = width
    network.conv1 = torch.nn.Conv2d(3, width, 7, 2, 3, bias=False)
    network.bn1 = torch.nn.BatchNorm2d(width)
    for stage, n in enumerate(blocks):
        setattr(network, f"layer{stage + 1}", network._make_layer(block, width << stage, n, stride=2 if stage else 1))
    network.fc = torch.nn.Linear(width << len(blocks) - 1 + 2, classes)
    return network
