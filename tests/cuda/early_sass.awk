# SPDX-License-Identifier: Apache-2.0
# Looks through machine code of sm_90a (nvdisasm -c) for what a kernel does with the device's memory before it has waited for the kernel in front (ACQBULK, which is PTX's
# griddepcontrol.wait): nvcc's assembler is to move nothing over that. Along every branch from the kernel's begin to its first wait only convolutions may read there, their weights (lane.h);
# nobody may write. A convolution that merges beside itself (layer_merge.h) reads as often as its usual instance: what its blocks merge has another wait, and nothing is read before that.
#
# Prints a line a fault and "N kernels wait first"; status 1: faults, or no kernel that waits.

function told(name, what)
{
	print name ": " what
	faults++
}

# All that is carried out before a wait.
function look(    top, way, i, op, seen, waited)
{
	if (kernel == "")
		return
	kernels++
	reads[kernel] = 0
	way[++top] = 1
	while (top)
		for (i = way[top--]; i <= n && !(i in seen); i++) {
			seen[i]
			op = opcode[i]
			if (op == "ACQBULK") {
				waited = 1
				break
			}
			if (op ~ /^(LD|LDG|LDGSTS)(\.|$)/)
				reads[kernel]++
			if (op ~ /^(ST|STG|ATOM|ATOMG|RED|REDG)(\.|$)/ || (op ~ /^(LD|LDG|LDGSTS)(\.|$)/ && kernel !~ /conv[13]x[13]_|gray_forward/))
				told(kernel, text[i] " before it waits for the kernel in front")
			if (op !~ /^(BSSY|CALL)/ && (i in jump))
				way[++top] = place[jump[i]]
			if (text[i] ~ /^(BRA +`|EXIT|RET|BRX)/ && !guarded[i])
				break
		}
	if (!waited)
		told(kernel, "does not wait for the kernel in front")
	n = 0
	split("", jump); split("", place)
}

# The kernels of a file are through.
function compare(    name, usual)
{
	for (name in reads) {
		usual = name
		if (gsub(/15conv1x1_merging/, "16conv1x1_backward", usual) + gsub(/15conv3x3_merging/, "16conv3x3_backward", usual) && reads[name] != reads[usual])
			told(name, "reads " reads[name] " times before it waits for the kernel in front, not " ((usual in reads) ? reads[usual] : "as often as its usual instance, which is not there"))
	}
	split("", reads)
}

/^\t\.target/ { look(); kernel = ""; compare() }
/^\.text\./ { look(); kernel = substr($1, 7, length($1) - 7) }
/^\.L_/ { sub(/:.*/, ""); place[$0] = n + 1 }
/^ +\/\*[0-9a-f]+\*\/ .*;/ {
	sub(/^ +\/\*[0-9a-f]+\*\/ +/, ""); sub(/ *;.*/, "")
	n++
	guarded[n] = sub(/^@!?U?P[0-9T]+ +/, "")
	text[n] = $0
	opcode[n] = $1
	if (match($0, /`\(\.L_[^)]*\)/))
		jump[n] = substr($0, RSTART + 2, RLENGTH - 3)
}
END {
	look()
	compare()
	print kernels + 0 " kernels wait first"
	exit faults || !kernels
}
