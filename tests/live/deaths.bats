#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A few trials of the drills that `make bench` runs many of: ranks killed at random instants of a training.

load helpers

setup_file() {
	[ -e "$BUILD/libhvd.so" ] || skip "libhvd.so is not built (no PMIx headers)"
	cluster_up --plugin none
	cluster_down
	need_pmix
}

@test "whoever is killed, and whenever: the others name the dead, or go on to the right end" {
	# also for a user who tells libhvd something for a cluster of his own
	HVD_IFACE=ib7 run "$TOP/tests/drill/deaths" 9 "${TEST_SEED:-$$}"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *" steps with kill -9, 0 with SIGSTOP, 0 with the link down, "*"; 0 went wrong"* ]]
}

@test "killed at random instants and resumed on other ranks: no sample is lost or repeated" {
	[ -x "$BUILD/chexnet" ] || skip "chexnet is not built"
	HVD_BACKEND=nccl run "$TOP/tests/drill/resume" 2 "${TEST_SEED:-$$}"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output =~ "2 trainings, "[1-9][0-9]*" kills, "[1-9][0-9]*" steps compared: 0 went wrong" ]]
}
