# SPDX-License-Identifier: Apache-2.0
# Random command lines for options_lines.bats. A line is made of options, a program and its arguments, so what the
# program has to be given is known from the making, not from anybody's parser.
#
#     lines.bash CLIENT FROM TO    inside a cluster: lines FROM … TO-1 through srun, sbatch or salloc
#
# Every line is a function of CLIENT, its number and $SEED. Prints each line that went wrong, then "N lines, M wrong".
set -u
client=$1 from=$2 to=$3
one_in=$([ "$client" = srun ] && echo 4 || echo 10)
out=$SCRATCH/lines-$client-$from
rm -rf "$out"
mkdir -p "$out"

# One way of several, each a list of words.
pick() { # WORDS…: sets `picked`
	picked=${!#}
	local n=$((RANDOM % $#))
	shift $n
	picked=$1
}

# Words that options of Slurm take along, in every spelling: apart, in one, as a cluster of letters, shortened; some look
# like options themselves. They are kept apart by tabs, as values may hold blanks.
t=$'\t'
tasks=("-n1" "-n${t}1" "--ntasks=1" "--ntasks${t}1" "-Qn1" "-Qn${t}1")
gpus=("--gpus=1" "--gpus${t}1" "-G1" "-G${t}1" "--gpus-per-node=1" "--gpus-per-n${t}1" "--gres=gpu:1" "--gres${t}gpu:1")
anywhere=("-Q" "--quiet" "--comment=--gpu-bind=socket" "--comment${t}--gpu-bind=socket" "--comment${t}:" "--comment${t}--" "-D/" "-D${t}/" "--chdir=/"
	"--chdir${t}/" "--chdi=/" "-t5" "-t${t}5" "--time${t}5" "-k" "--no-kill" "-c1" "-c${t}1" "--cpus-per-task=1" "-pall" "--partition${t}all"
	"--nice" "--nice=3" "-Qk" "-Oc1" "-Oc${t}1" "-J${t}--hvd" "-J--hvd" "--job-name${t}--gpu-bind=socket" "--job-name=:" "--wckey${t}x" "-B${t}1" "-m${t}block"
	"--switches=1" "--mail-user${t}--hvd-bind=none")
if [ "$client" = salloc ]; then # that of Slurm 23.11 takes no --chdir in a later component
	for i in "${!anywhere[@]}"; do case ${anywhere[i]} in -D* | --chdi*) unset "anywhere[i]" ;; esac; done
fi
only_srun=("-W${t}5" "-W5" "-K" "-K1" "--kill-on-bad-exit" "-u" "-i${t}none" "-inone" "--input=none" "-T${t}4" "--threads${t}4" "--propagate" "--propagate=NONE"
	"-X" "--cpu-bind${t}none" "--overlap" "-uX" "--export=ALL" "--export${t}ALL" "-E" "--prolog${t}none")
only_sbatch=("--open-mode=a" "--open-mode${t}append" "--parsable" "--no-requeue" "--requeue" "--export=ALL" "-i${t}/dev/null" "--propagate")
only_salloc=("--no-bell" "-K" "-KTERM" "--kill-command=TERM" "-I30" "--immediate=30")
ours=("" "" "--gpu-bind=socket" "--gpu-bind${t}socket" "--gpu-bin=socket" "--gpu-bi${t}socket" "--hvd-bind=socket" "--hvd-bind${t}socket" "--hvd-b${t}socket"
	"--hvd${t}--gpu-bind=socket" "--hvd=deadline=9${t}--gpu-bind${t}socket")
long=$(printf 'long%.0s' {1..1500})
arguments=('--gpu-bind=socket' '--gpu-bind' 'socket' '--gpu-bin=socket' '--hvd' '--hvd=off' '--hvd-bind=none' '--hvd-bind' '-n' '7' '-N2' '-n2' '--' '-' '' ' '
	'two words' "it's" '"' '$HOME' '`id`' '*' '\' $'new\nline' 'ü' '--ntasks=9' '-c' 'a:b' '::' '--help' '-V' '-v' '--no-such' '=' '%t' '%j' '[1-3]' '#' '&' "$long")
[ "$client" != salloc ] || arguments+=(":") # srun starts another component there, and sbatch drops it

component() { # LINE'S OWN WORDS: sets `words` (options) and `given` (the program's arguments)
	local n k pool="only_$client[@]" all=()
	all=("${anywhere[@]}" "${!pool}")
	pick "${tasks[@]}"; words=$picked
	[[ $own != *--hvd* && $((RANDOM % 2)) = 0 ]] || { pick "${gpus[@]}"; words+=$t$picked; } # with --hvd, tasks have to fit GPUs
	for ((n = RANDOM % 5; n > 0; n--)); do
		pick "${all[@]}"
		words+=$t$picked
	done
	# Slurm hands the nodes one value of a plugin's option, so all components of a line have the same
	[ -z "$own" ] || words=$([ $((RANDOM % 2)) = 0 ] && printf '%s' "$own$t$words" || printf '%s' "$words$t$own")
	given=()
	for ((k = RANDOM % 9; k > 0; k--)); do given+=("${arguments[RANDOM % ${#arguments[@]}]}"); done
}

line() { # NUMBER: sets `line`, `components`, and `expected`, what $SHOW writes for each component into the file OUT/NUMBER.COMPONENT
	local n options
	components=1
	RANDOM=$(((SEED * 7919 + ${#client} * 104729 + $1 * 31) % 32768))
	pick "${ours[@]}"; own=$picked
	# Slurm starts heterogeneous jobs, not steps, a second or two later: fewer of them
	[ $((RANDOM % one_in)) != 0 ] || components=2
	local policy=none
	[ -z "$own" ] || policy=socket
	line=("$client") expected=()
	for ((n = 0; n < components; n++)); do
		component
		IFS=$t read -ra options <<<"$words"
		[ $n = 0 ] || line+=(:)
		line+=("${options[@]}")
		[ "$client" = srun ] || [ $n -gt 0 ] || [ "$client" = salloc ] || line+=(-o "$out/$1.log")
		# of sbatch and salloc only the last component is followed by a program
		[ "$client" = srun ] || [ $n = $((components - 1)) ] || continue
		[ $((RANDOM % 4)) != 0 ] || line+=(--)
		line+=("$SHOW" "$out/$1.$n" "${given[@]}")
		expected[n]=$(printf '%q ' "$policy" "${given[@]}")
	done
}

compare() { # NUMBER
	local n
	for n in "${!expected[@]}"; do
		[ "$(cat "$out/$1.$n" 2>&1)" != "${expected[n]}" ] || continue
		wrong=$((wrong + 1))
		printf 'line %d:' "$1"; printf ' %q' "${line[@]}"
		printf '\n  expected: %s\n  written:  %s\n' "${expected[n]}" "$(cat "$out/$1.$n" "$out/$1.err" 2>&1)"
	done
}

queue_is_empty() { [ -z "$(squeue -h)" ]; }

submit() { # NUMBER
	timeout 30 "${line[@]}" </dev/null >"$out/$1.out" 2>"$out/$1.err"
	# heterogeneous jobs wait for each other for ever if several are in the queue
	[ "$client$components" != sbatch2 ] || until queue_is_empty; do sleep 0.1; done
}

wrong=0
for step in submit compare; do
	for wanted in 1 2; do
		for ((i = from; i < to; i++)); do
			line $i
			[ $components != $wanted ] || $step $i
		done
		[ "$client$step" != sbatchsubmit ] || until queue_is_empty; do sleep 0.1; done
	done
done
echo "$((to - from)) lines, $wrong wrong"
[ $wrong = 0 ]
