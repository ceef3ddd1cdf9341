#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A few trials of the drill that `make bench` runs 300 of: ranks killed at random instants of a training.

load helpers

@test "whoever is killed, and whenever: the others name the dead, or go on to the right end" {
	need_slurm
	run "$TOP/tests/drill/deaths" 9 "${TEST_SEED:-$$}"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *" steps with kill -9, 0 with SIGSTOP, 0 with the link down, "*"; 0 went wrong"* ]]
}
