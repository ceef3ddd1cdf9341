#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks killed, stopped and cut off at random instants of a training: what the others then do, and how soon they go on.
exec "$(dirname "${BASH_SOURCE[0]}")/../drill/deaths" "${KILLS:-300}" "${SEED:-1}"
