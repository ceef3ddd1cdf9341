#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The manual pages and what the programs do: the same options, variables and words in both.
bats_require_minimum_version 1.5.0

load helpers

setup_file() {
	rm -rf "$SCRATCH"
	mkdir -p "$SCRATCH"
	cp "$TOP"/spank/*.[18] "$TOP"/runtime/*.[13] "$SCRATCH"
	[ ! -x "$BUILD/chexnet" ] || "$BUILD/chexnet" --man-page >"$SCRATCH/chexnet.1"
	# as a reader sees them
	for page in "$SCRATCH"/*.[138]; do sed -e 's/\\f[A-Z]//g; s/\\//g' "$page" >"$page.text"; done
}
teardown_file() { rm -rf "$SCRATCH"; }

# The options that are headings of paragraphs in the manual, long names only, sorted.
options_of_manual() { sed -n '/^\.SH.*OPTIONS/,/^\.SH [A-Z]/{/^\.\(B\|BI\|BR\) .*--/p}' "$SCRATCH/$1.1.text" | grep -oE -- '--[a-z][a-z-]*' | sort -u; }
options_of_help() { "$BUILD/$1" --help | sed -n '/^ *-/p' | grep -oE -- '^ *(-[a-zA-Z], )?--[a-z][a-z-]*([,;] --[a-z-]*)?' | grep -oE -- '--[a-z][a-z-]*' | sort -u; }

@test "each option that a program lists is in its manual page, and the other way round; it knows them all" {
	local program option
	for program in hvd-map hvd-bench hvd-trace; do
		[ -x "$BUILD/$program" ] || continue
		options_of_help "$program" >"$SCRATCH/help"
		options_of_manual "$program" >"$SCRATCH/manual"
		echo "$program: $(paste -sd' ' "$SCRATCH/help")"
		[ "$(wc -l <"$SCRATCH/help")" -ge 4 ]
		diff "$SCRATCH/help" "$SCRATCH/manual"
		while read -r option; do
			run timeout 5 "$BUILD/$program" "$option" ""
			if [[ $output == *"unrecognized option"* ]]; then echo "$output"; false; fi
		done < <(grep -v -- '--start-up\|--transports' "$SCRATCH/help")
		run -0 "$BUILD/$program" --version
		[[ $output == "$program "[0-9]* ]]
		run -64 "$BUILD/$program" --frobnicate
		[ "${#lines[@]}" -eq 2 ]
		[[ ${lines[1]} == "$program: $program --help lists the options" ]]
	done
}

@test "each variable that the code reads or sets is in a manual page, or known to be internal" {
	local name
	[ -e "$SCRATCH/chexnet.1" ] || skip "chexnet is not built"
	# between the plugin's halves; NCCL's own
	printf '%s\n' SLURM_HVD_STEP SLURM_HVD_VISIBLE_DEVICES NCCL_DEBUG_FILE NCCL_HOSTID NCCL_DEBUG_SUBSYS NCCL_IB_DISABLE >"$SCRATCH/internal"
	grep -rohE '"(HVD|CHEXNET|SLURM_HVD|CUDA|CUDNN|NCCL|UCX|OMP|TMP)[A-Z_]+"' "$TOP/spank" "$TOP/runtime" "$TOP/trainer" | tr -d '"' | grep -v '_$' | sort -u >"$SCRATCH/variables"
	[ "$(wc -l <"$SCRATCH/variables")" -gt 25 ]
	while read -r name; do
		cat "$SCRATCH"/*.text | grep -qE "(^|[^A-Z_])$name([^A-Z_]|\$)" || grep -qx "$name" "$SCRATCH/internal" || { echo "$name is in no manual page"; false; }
	done <"$SCRATCH/variables"
}

@test "each function of hvd.h is in libhvd(3) with the same parameters, and exported" {
	# int hvd_wait(struct hvd *h, long request); as one line each
	sed -n 's/^HVD_API //p' "$TOP/runtime/hvd.h" | sort >"$SCRATCH/declared"
	[ "$(wc -l <"$SCRATCH/declared")" -gt 30 ]
	sed -n '/^\.SH SYNOPSIS/,/^\.SH DESC/s/^\.BI //p' "$SCRATCH/libhvd.3" | sed 's/\\//g; s/" \([^"]*\) "/\1/g; s/"//g; s/ \([a-z_]*\[256\]\) );$/\1);/; s/ );$/);/' | sort >"$SCRATCH/promised"
	diff <(tr -d ' ' <"$SCRATCH/declared") <(tr -d ' ' <"$SCRATCH/promised")
	[ -e "$BUILD/libhvd.so" ] || skip "libhvd.so is not built (no PMIx headers)"
	diff <(nm -D --defined-only "$BUILD/libhvd.so" | sed -n 's/.* T //p' | sort) <(grep -o 'hvd_[a-z_]*(' "$SCRATCH/declared" | tr -d '(' | sort)
}

@test "the words of plugstack.conf are in the manual page and in hvd.conf" {
	local word words
	words=$(sed -n 's/^static const char \*const site_keys = "\(.*\)";/\1/p' "$TOP/spank/options.c" | tr '|' ' ')
	[ "$(wc -w <<<"$words")" -ge 8 ]
	for word in $words; do
		sed -n '/^\.SH PLUGSTACK.CONF/,/^\.SH EXIT/p' "$SCRATCH/spank_hvd.8.text" | grep -qE "^\.B[IR]? (.* )?$word=" || { echo "$word: not in spank_hvd(8)"; false; }
		grep -qE "^# .*$word=" "$TOP/etc/plugstack.conf.d/hvd.conf" || { echo "$word: not in hvd.conf"; false; }
	done
}

@test "manual pages have the sections of one, name only pages that there are, and render without a warning" {
	local page section name
	for page in "$SCRATCH"/*.[138]; do
		echo "${page##*/}"
		for section in NAME SYNOPSIS DESCRIPTION 'SEE ALSO'; do grep -qx "\.SH \"*$section\"*" "$page"; done
		grep -qE '^\.SH (EXIT STATUS|RETURN VALUE)$' "$page"
		grep -qE '^\.SH EXAMPLES?$' "$page"
		grep -qE '^\.TH [A-Z_-]+ [138] 20[0-9-]+ ' "$page"
		for name in $(grep -ohE '(hvd|libhvd|chexnet|spank_hvd)[a-z_-]* ?\([138]\)' "$page.text" | tr -d ' ' | sort -u); do
			[ "$name" != "chexnet(1)" ] || [ -x "$BUILD/chexnet" ] || continue
			[ -e "$SCRATCH/${name%(*}.$(tr -dc 0-9 <<<"$name")" ] || { echo "$name: no such page"; false; }
		done
		if command -v man >/dev/null; then
			run -0 bash -c 'for locale in C.UTF-8 C; do LC_ALL=$locale man --warnings -l "$0" 2>&1 >/dev/null; done' "$page"
			echo "$output"
			[ -z "$output" ]
		fi
		if command -v mandoc >/dev/null; then mandoc -T lint -W warning "$page"; fi
	done
}
