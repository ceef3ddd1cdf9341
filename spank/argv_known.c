/* SPDX-License-Identifier: Apache-2.0
 * The options of srun, sbatch and salloc in Slurm 22.05 to 26.05, every release's together: no name has changed between
 * taking the next word and not taking it, so one table finds the right words for all of them. */
#include "argv.h"

#include <stddef.h>

enum { NONE = no_argument, NEXT = required_argument, MAYBE = optional_argument };
enum { SRUN = 1 << PROGRAM_SRUN, SBATCH = 1 << PROGRAM_SBATCH, SALLOC = 1 << PROGRAM_SALLOC, ALL = SRUN | SBATCH | SALLOC };

static const struct {
	const char *name;
	int argument;
	char letter; /* 0: none */
	int programs;
} known[] = {
	{ "accel-bind", NEXT, 0, SRUN },
	{ "account", NEXT, 'A', ALL },
	{ "acctg-freq", NEXT, 0, ALL },
	{ "array", NEXT, 'a', SBATCH },
	{ "async", NONE, 0, SRUN },
	{ "autocomplete", NEXT, 0, ALL },
	{ "batch", NEXT, 0, SBATCH },
	{ "bb", NEXT, 0, ALL },
	{ "bbf", NEXT, 0, ALL },
	{ "bcast", MAYBE, 0, SRUN },
	{ "bcast-exclude", NEXT, 0, SRUN },
	{ "begin", NEXT, 'b', ALL },
	{ "bell", NONE, 0, SALLOC },
	{ "chdir", NEXT, 'D', ALL },
	{ "cluster", NEXT, 0, ALL },
	{ "cluster-constraint", NEXT, 0, ALL },
	{ "clusters", NEXT, 'M', ALL },
	{ "comment", NEXT, 0, ALL },
	{ "compress", MAYBE, 0, SRUN },
	{ "consolidate-segments", NONE, 0, ALL },
	{ "constraint", NEXT, 'C', ALL },
	{ "container", NEXT, 0, ALL },
	{ "container-id", NEXT, 0, ALL },
	{ "container-type", NEXT, 0, ALL },
	{ "context", NEXT, 0, ALL },
	{ "contiguous", NONE, 0, ALL },
	{ "core-spec", NEXT, 'S', ALL },
	{ "cores-per-socket", NEXT, 0, ALL },
	{ "cpu-bind", NEXT, 0, SRUN },
	{ "cpu-freq", NEXT, 0, ALL },
	{ "cpu_bind", NEXT, 0, SRUN },
	{ "cpus-per-gpu", NEXT, 0, ALL },
	{ "cpus-per-task", NEXT, 'c', ALL },
	{ "deadline", NEXT, 0, ALL },
	{ "debugger-test", NONE, 0, SRUN },
	{ "delay-boot", NEXT, 0, ALL },
	{ "dependency", NEXT, 'd', ALL },
	{ "disable-status", NONE, 'X', SRUN },
	{ "distribution", NEXT, 'm', ALL },
	{ "epilog", NEXT, 0, SRUN },
	{ "error", NEXT, 'e', SRUN | SBATCH },
	{ "exact", NONE, 0, SRUN },
	{ "exclude", NEXT, 'x', ALL },
	{ "exclusive", MAYBE, 0, ALL },
	{ "export", NEXT, 0, SRUN | SBATCH },
	{ "export-file", NEXT, 0, SBATCH },
	{ "external", NONE, 0, SBATCH },
	{ "external-launcher", MAYBE, 0, SRUN },
	{ "extra", NEXT, 0, ALL },
	{ "extra-node-info", NEXT, 'B', ALL },
	{ "get-user-env", NONE, 0, SBATCH },
	{ "get-user-env", MAYBE, 0, SALLOC },
	{ "gid", NEXT, 0, ALL },
	{ "gpu-bind", NEXT, 0, ALL },
	{ "gpu-freq", NEXT, 0, ALL },
	{ "gpus", NEXT, 'G', ALL },
	{ "gpus-per-node", NEXT, 0, ALL },
	{ "gpus-per-socket", NEXT, 0, ALL },
	{ "gpus-per-task", NEXT, 0, ALL },
	{ "gres", NEXT, 0, ALL },
	{ "gres-flags", NEXT, 0, ALL },
	{ "help", NONE, 'h', ALL },
	{ "het-group", NEXT, 0, SRUN },
	{ "hint", NEXT, 0, ALL },
	{ "hold", NONE, 'H', ALL },
	{ "ignore-pbs", NONE, 0, SBATCH },
	{ "ignore-signals", NEXT, 0, SRUN },
	{ "immediate", MAYBE, 'I', SRUN | SALLOC },
	{ "input", NEXT, 'i', SRUN | SBATCH },
	{ "interactive", NONE, 0, SRUN },
	{ "job-name", NEXT, 'J', ALL },
	{ "jobid", NEXT, 0, SRUN },
	{ "kill-command", MAYBE, 'K', SALLOC },
	{ "kill-on-bad-exit", MAYBE, 'K', SRUN },
	{ "kill-on-invalid-dep", NEXT, 0, SBATCH },
	{ "label", NONE, 'l', SRUN },
	{ "licenses", NEXT, 'L', ALL },
	{ "mail-type", NEXT, 0, ALL },
	{ "mail-user", NEXT, 0, ALL },
	{ "mcs-label", NEXT, 0, ALL },
	{ "mem", NEXT, 0, ALL },
	{ "mem-bind", NEXT, 0, ALL },
	{ "mem-per-cpu", NEXT, 0, ALL },
	{ "mem-per-gpu", NEXT, 0, ALL },
	{ "mem-update", NEXT, 0, ALL },
	{ "mincpus", NEXT, 0, ALL },
	{ "mpi", NEXT, 0, SRUN },
	{ "msg-timeout", NEXT, 0, SRUN },
	{ "multi-prog", NONE, 0, SRUN },
	{ "network", NEXT, 0, ALL },
	{ "nice", MAYBE, 0, ALL },
	{ "no-allocate", NONE, 'Z', SRUN },
	{ "no-bell", NONE, 0, SALLOC },
	{ "no-kill", MAYBE, 'k', ALL },
	{ "no-requeue", NONE, 0, SBATCH },
	{ "no-shell", NONE, 0, SALLOC },
	{ "nodefile", NEXT, 'F', ALL },
	{ "nodelist", NEXT, 'w', ALL },
	{ "nodes", NEXT, 'N', ALL },
	{ "ntasks", NEXT, 'n', ALL },
	{ "ntasks-per-core", NEXT, 0, ALL },
	{ "ntasks-per-gpu", NEXT, 0, ALL },
	{ "ntasks-per-node", NEXT, 0, ALL },
	{ "ntasks-per-socket", NEXT, 0, ALL },
	{ "ntasks-per-tres", NEXT, 0, ALL },
	{ "oom-kill-step", MAYBE, 0, ALL },
	{ "open-mode", NEXT, 0, SRUN | SBATCH },
	{ "output", NEXT, 'o', SRUN | SBATCH },
	{ "overcommit", NONE, 'O', ALL },
	{ "overlap", MAYBE, 0, SRUN },
	{ "oversubscribe", NONE, 's', ALL },
	{ "pack-group", NEXT, 0, SRUN },
	{ "parsable", NONE, 0, SRUN | SBATCH },
	{ "partition", NEXT, 'p', ALL },
	{ "power", NEXT, 0, ALL },
	{ "prefer", NEXT, 0, ALL },
	{ "preserve-env", NONE, 'E', SRUN },
	{ "priority", NEXT, 0, ALL },
	{ "profile", NEXT, 0, ALL },
	{ "prolog", NEXT, 0, SRUN },
	{ "propagate", MAYBE, 0, SRUN | SBATCH },
	{ "pty", MAYBE, 0, SRUN },
	{ "qos", NEXT, 'q', ALL },
	{ "quiet", NONE, 'Q', ALL },
	{ "quit-on-interrupt", NONE, 0, SRUN },
	{ "reboot", NONE, 0, ALL },
	{ "relative", NEXT, 'r', SRUN },
	{ "requeue", MAYBE, 0, SBATCH },
	{ "reservation", NEXT, 0, ALL },
	{ "resources", NEXT, 0, ALL },
	{ "resv-ports", MAYBE, 0, ALL },
	{ "segment", NEXT, 0, ALL },
	{ "send-libs", MAYBE, 0, SRUN },
	{ "signal", NEXT, 0, ALL },
	{ "slurmd-debug", NEXT, 0, SRUN },
	{ "sockets-per-node", NEXT, 0, ALL },
	{ "spread-job", NONE, 0, ALL },
	{ "spread-segments", NONE, 0, ALL },
	{ "stepmgr", NONE, 0, ALL },
	{ "switches", NEXT, 0, ALL },
	{ "task-epilog", NEXT, 0, SRUN },
	{ "task-prolog", NEXT, 0, SRUN },
	{ "tasks-per-node", NEXT, 0, ALL },
	{ "test-only", NONE, 0, SRUN | SBATCH },
	{ "thread-spec", NEXT, 0, ALL },
	{ "threads", NEXT, 'T', SRUN },
	{ "threads-per-core", NEXT, 0, ALL },
	{ "time", NEXT, 't', ALL },
	{ "time-min", NEXT, 0, ALL },
	{ "tmp", NEXT, 0, ALL },
	{ "treewidth", NEXT, 0, SRUN },
	{ "tres-bind", NEXT, 0, ALL },
	{ "tres-per-task", NEXT, 0, ALL },
	{ "uid", NEXT, 0, ALL },
	{ "unbuffered", NONE, 'u', SRUN },
	{ "usage", NONE, 0, ALL },
	{ "use-min-nodes", NONE, 0, ALL },
	{ "verbose", NONE, 'v', ALL },
	{ "version", NONE, 'V', ALL },
	{ "wait", NONE, 'W', SBATCH },
	{ "wait", NEXT, 'W', SRUN },
	{ "wait-all-nodes", NEXT, 0, SBATCH | SALLOC },
	{ "wait-for-children", NONE, 0, SRUN },
	{ "wckey", NEXT, 0, ALL },
	{ "whole", NONE, 0, SRUN },
	{ "wrap", NEXT, 0, SBATCH },
	{ "x11", MAYBE, 0, SRUN | SALLOC },
};

enum { KNOWN = sizeof known / sizeof *known };
_Static_assert((int)KNOWN + 3 < (int)ARGV_MAX_KNOWN, "room for the end and for a plugin's own options");

void argv_known(enum program program, struct option table[ARGV_MAX_KNOWN], char letters[3 * 64])
{
	size_t n = 0;

	*letters++ = '+';
	for (int k = 0; k < KNOWN; k++) {
		if (!(known[k].programs >> program & 1))
			continue;
		table[n++] = (struct option){ known[k].name, known[k].argument, NULL, known[k].letter ? known[k].letter : 1000 + k };
		if (!known[k].letter)
			continue;
		*letters++ = known[k].letter;
		for (int colon = 0; colon < known[k].argument; colon++)
			*letters++ = ':';
	}
	*letters = '\0';
	table[n++] = (struct option){ "hvd", optional_argument, NULL, 998 };
	table[n++] = (struct option){ "hvd-bind", required_argument, NULL, 999 };
	table[n] = (struct option){ 0 };
}
