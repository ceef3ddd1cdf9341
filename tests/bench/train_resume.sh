#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trainings killed at random instants and resumed on other numbers of ranks: whether a sample is lost or repeated.
exec "$(dirname "${BASH_SOURCE[0]}")/../drill/resume" "${RESUMES:-40}" "${SEED:-1}"
