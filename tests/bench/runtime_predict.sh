#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No measurement: what communication would cost DenseNet-121 on 16, 64 and 1,024 GPUs, from ready times that a training on CPUs left
# (HVD_PLAN=densenet121.plan; its last line says which) and published link speeds. STEP: ms of a step of 256 images; 18.4 is what an
# H200 takes (trainer/BENCHMARKS.md), and a faster step hides less.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
"${BUILD:-build}/hvd-bench" --predict tests/bench/densenet121.plan --step "${STEP:-18.4}"
