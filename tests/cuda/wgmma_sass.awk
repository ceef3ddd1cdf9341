# SPDX-License-Identifier: Apache-2.0
# Looks through machine code of sm_90a (nvdisasm -c) for registers that change while a product of wgmma (HGMMA) uses them. nvcc's assembler is to see
# to that and does not always (warpgroup.h). From each product on, along every branch, until a wait (WARPGROUP.DEPBAR) covers its group, nothing may write
# its sums or, where they are registers, its left matrix; and no branch back may be taken at all with such a matrix.
#
# Prints a line a fault and "N products of M kernels"; status 1: faults, or no products.

# The registers that instruction i writes: first[i] …, wide[i] of them.
function written(i, op,    t, part, count, j)
{
	t = text[i]
	sub(/^[^ ]+ +/, "", t)
	count = split(t, part, /, */)
	for (j = 1; j < count && part[j] ~ /^!?U?P[0-9T]$/; j++)
		;
	if (op ~ /SETP|^ST|^RED|^BAR|^WARPSYNC|^HGMMA/ || part[j] !~ /^R[0-9]+(\.[A-Z0-9]+)*$/)
		return
	first[i] = substr(part[j], 2) + 0
	wide[i] = op ~ /\.128/ || op ~ /^LDSM.*\.4$/ ? 4 : op ~ /\.64|WIDE/ || op ~ /^LDSM.*\.2$/ || (op ~ /^CS2R/ && op !~ /\.32/) ? 2 : 1
}

function overlap(i, from, count)
{
	return (i in first) && first[i] < from + count && from < first[i] + wide[i]
}

function tell(i, what, product)
{
	print kernel ": " text[i] " (" what " " text[product] ")"
	faults++
	return 1
}

# Along all ways from product p, to its first fault: at instruction i, `closed` groups are closed, its own the first of them.
function follow(p, sums, columns, left,    i, closed, top, op, seen, way, ways, to)
{
	top = 0
	way[++top] = p + 1; ways[top] = text[p] ~ /gsb0/
	while (top) {
		i = way[top]; closed = ways[top--]
		for (; i <= n && !((i, closed) in seen); i++) {
			seen[i, closed] = 1
			op = opcode[i]
			if (op ~ /^HGMMA/) {
				closed += closed < 9 && text[i] ~ /gsb0/
				continue
			}
			if (op ~ /^WARPGROUP\.DEPBAR/ && match(text[i], /0x[0-9a-f]+/) && closed > hex(substr(text[i], RSTART + 2, RLENGTH - 2)))
				break
			if (overlap(i, sums, columns / 2))
				return tell(i, "writes sums of", p)
			if (left != "" && overlap(i, left, 4))
				return tell(i, "writes what is read by", p)
			if (op ~ /^BRA/ && (i in jump)) {
				to = place[jump[i]]
				if (left != "" && to <= i)
					return tell(i, "branches back during", p)
				way[++top] = to; ways[top] = closed
			}
			if (text[i] ~ /^(BRA +`|EXIT|RET|BRX)/ && !guarded[i])
				break
		}
	}
}

function hex(digits,    value, j)
{
	for (j = 1; j <= length(digits); j++)
		value = value * 16 + index("0123456789abcdef", substr(digits, j, 1)) - 1
	return value
}

function look(    i, part)
{
	for (i = 1; i <= n; i++)
		if (opcode[i] ~ /^HGMMA/) {
			if (split(text[i], part, /[ ,]+/) < 4 || part[2] !~ /^R[0-9]+$/ || !match(opcode[i], /64x[0-9]+/)) {
				tell(i, "not understood:", i)
				continue
			}
			products++
			kernels += !(kernel in counted)
			counted[kernel]
			follow(i, substr(part[2], 2) + 0, substr(opcode[i], RSTART + 3, RLENGTH - 3), part[3] ~ /^R[0-9]/ ? substr(part[3], 2) + 0 : "")
		}
	n = 0
	split("", first); split("", jump); split("", place)
}

/^\.text\./ { look(); kernel = substr($1, 7, length($1) - 7) }
/^\.L_/ { sub(/:.*/, ""); place[$0] = n + 1 }
/^ +\/\*[0-9a-f]+\*\/ .*;/ {
	sub(/^ +\/\*[0-9a-f]+\*\/ +/, ""); sub(/ *;.*/, "")
	n++
	guarded[n] = sub(/^@!?U?P[0-9T] +/, "")
	text[n] = $0
	opcode[n] = $1
	if (match($0, /`\(\.L_[^)]*\)/))
		jump[n] = substr($0, RSTART + 2, RLENGTH - 3)
	written(n, $1)
}
END {
	look()
	print products + 0 " products of " kernels + 0 " kernels"
	exit faults || !products
}
