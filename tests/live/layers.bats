#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Which file needs which, by the symbols in their objects: none needs one that needs it, whatever lies between them.
bats_require_minimum_version 1.5.0
load helpers

# PART: a line for each two of its files of which the first needs the second
needs() {
	local source objects=()
	cd "$BUILD/obj/$1"
	for source in "$TOP/$1"/*.c; do
		source=$(basename "$source" .c)
		[ ! -e "$source.o" ] || objects+=("$source.o")
	done
	nm -A "${objects[@]}" | awk '
		{ sub(/\.o:.*/, "", $1) }
		$(NF - 1) ~ /^[TDBRVW]$/ { home[$NF] = $1 }
		$(NF - 1) == "U" { users[$NF] = users[$NF] " " $1 }
		END {
			for (symbol in users)
				for (i = split(symbol in home ? users[symbol] : "", user, " "); i > 0; i--)
					print user[i], home[symbol]
		}' | sort -u
}

@test "no file of runtime/ needs one that needs it" {
	[ -e "$BUILD/libhvd.so" ] || skip "no libhvd.so"
	needs runtime >"$BATS_TEST_TMPDIR/needs"
	grep -qx 'mesh watch' "$BATS_TEST_TMPDIR/needs"
	run -0 tsort "$BATS_TEST_TMPDIR/needs"
}

@test "no file of spank/ needs one that needs it" {
	[ -e "$BUILD/spank_hvd.so" ] || skip "spank_hvd.so is not built"
	needs spank >"$BATS_TEST_TMPDIR/needs"
	grep -qx 'task variables' "$BATS_TEST_TMPDIR/needs"
	run -0 tsort "$BATS_TEST_TMPDIR/needs"
}

@test "no file of trainer/commands/ needs one that needs it" {
	[ -e "$BUILD/chexnet" ] || skip "chexnet is not built"
	needs trainer/commands >"$BATS_TEST_TMPDIR/needs"
	grep -qx 'train train_loop' "$BATS_TEST_TMPDIR/needs"
	run -0 tsort "$BATS_TEST_TMPDIR/needs"
}
