#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Which file needs which, by the symbols in their objects: none needs one that needs it, whatever lies between them.
bats_require_minimum_version 1.5.0
load helpers

# FOLDER, from within $BUILD/obj: the objects of its sources; a build folder keeps those of files that are gone
objects() {
	local object
	find "$1" -name '*.o' | while read -r object; do
		! compgen -G "$TOP/${object%.o}.*" >/dev/null || echo "$object"
	done
}

# PART: a line for each two of its files of which the first needs the second
needs() {
	cd "$BUILD/obj"
	objects "$1" | xargs nm -A | awk '
		{ sub(/\.o:.*/, "", $1); sub(/.*\//, "", $1) }
		$(NF - 1) ~ /^[TDBRVW]$/ { home[$NF] = $1 }
		$(NF - 1) == "U" { users[$NF] = users[$NF] " " $1 }
		END {
			for (symbol in users)
				for (i = split(symbol in home ? users[symbol] : "", user, " "); i > 0; i--)
					print user[i], home[symbol]
		}' | sort -u
}

# PART PROGRAM FILE NEEDED: none of PART's files needs one that needs it; of two it is known that the first needs the second
in_layers() {
	[ -e "$BUILD/$2" ] || skip "$2 is not built"
	needs "$1" >"$BATS_TEST_TMPDIR/needs"
	grep -qx "$3 $4" "$BATS_TEST_TMPDIR/needs"
	run -0 tsort "$BATS_TEST_TMPDIR/needs"
}

@test "no file of runtime/ needs one that needs it" { in_layers runtime libhvd.so mesh watch; }
@test "no file of spank/ needs one that needs it" { in_layers spank spank_hvd.so task variables; }
@test "no file of trainer/commands/ needs one that needs it" { in_layers trainer/commands chexnet train train_loop; }
@test "no file of trainer/prepare/ needs one that needs it" { in_layers trainer/prepare chexnet audit audit_shortcuts; }
@test "no file of trainer/data/ needs one that needs it" { in_layers trainer/data chexnet records dataset; }
@test "no file of trainer/image/ needs one that needs it" { in_layers trainer/image chexnet decode jpeg; }
@test "no file of trainer/files/ needs one that needs it" { in_layers trainer/files chexnet csv file; }
@test "no file of trainer/engine/cpu/ needs one that needs it" { in_layers trainer/engine/cpu chexnet conv conv3; }
@test "no file of trainer/learn/ needs one that needs it" { in_layers trainer/learn chexnet evaluate auroc; }
@test "no file of trainer/report/ needs one that needs it" { in_layers trainer/report chexnet report page; }

@test "of trainer/'s commands, report, learn, prepare, data, engine, net, image and files, none needs one before it" {
	[ -e "$BUILD/chexnet" ] || skip "chexnet is not built"
	local folder above="$BATS_TEST_TMPDIR/above" wanted="$BATS_TEST_TMPDIR/wanted"
	cd "$BUILD/obj"
	for folder in commands report learn prepare data engine net image files; do
		objects "trainer/$folder" | xargs nm -u | awk 'NF == 2 { print $2 }' | sort -u >"$wanted"
		[ "$folder" = commands ] || [ -s "$above" ]
		[ "$folder" = commands ] || [ -z "$(comm -12 "$wanted" "$above" | tee /dev/stderr)" ]
		objects "trainer/$folder" | xargs nm -g --defined-only | awk 'NF == 3 { print $3 }' | sort -u - <(cat "$above" 2>/dev/null) >"$above.new"
		mv "$above.new" "$above"
	done
}
