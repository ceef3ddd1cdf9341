# SPDX-License-Identifier: Apache-2.0
# Looks through machine code of sm_90a (nvdisasm -c) for what a kernel does with the device's memory before it has waited for the kernel in front (ACQBULK, which is PTX's
# griddepcontrol.wait): nvcc's assembler is to move nothing over that. Only convolutions may read there, their weights (lane.h); nobody may write.
#
# Prints a line a fault and "N kernels wait first"; status 1: faults, or no kernel that waits.

function told(what)
{
	print kernel ": " what
	faults++
}

function close_kernel()
{
	if (kernel != "" && !waited)
		told("does not wait for the kernel in front")
	kernels += kernel != ""
}

/^\.text\./ { close_kernel(); kernel = substr($1, 7, length($1) - 7); waited = 0 }
/^ +\/\*[0-9a-f]+\*\/ .*;/ && !waited {
	sub(/^ +\/\*[0-9a-f]+\*\/ +/, ""); sub(/ *;.*/, ""); sub(/^@!?U?P[0-9T]+ +/, "")
	if ($1 == "ACQBULK")
		waited = 1
	else if ($1 ~ /^(ST|STG|ATOM|ATOMG|RED|REDG)(\.|$)/ || ($1 ~ /^(LD|LDG|LDGSTS)(\.|$)/ && kernel !~ /conv[13]x[13]_|gray_forward/))
		told($0 " before it waits for the kernel in front")
}
END {
	close_kernel()
	print kernels + 0 " kernels wait first"
	exit faults || !kernels
}
