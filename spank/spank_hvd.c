/* SPDX-License-Identifier: Apache-2.0
 * Every entry point that Slurm calls, and where it leads. Errors are -1: releases before 25.05 take a positive code for
 * success. Nothing here may fail in slurmstepd before the task, since a failing init drains the node. */
#include "plugin.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#pragma GCC visibility push(default)
SPANK_PLUGIN(hvd, 1)
#pragma GCC visibility pop

#define ENTRY __attribute__((visibility("default")))

static struct site site;

static int check_hvd(int value, const char *text, int remote);
static int check_bind(int value, const char *text, int remote);

static struct spank_option hvd_option = {
	.name = "hvd", .arginfo = "key=value,…", .has_arg = 2, .val = 1, .cb = check_hvd,
	.usage = "one task per GPU, joined into one data-parallel world (see \"--hvd=help\", and spank_hvd(8))",
};
static struct spank_option bind_option = {
	.name = "hvd-bind", .arginfo = "policy,…", .has_arg = 1, .val = 2, .cb = check_bind,
	.usage = "socket, numa, gpu or none: CPUs, memory and NIC near each task's GPU (also --gpu-bind=socket; see \"--hvd-bind=help\")",
};

/* Runs once per component of a heterogeneous command line, and again on the nodes; the value itself is read elsewhere. */
static int check_text(int scope, const char *name, const char *text, int remote)
{
	struct options o = options_default();
	char error[512];

	if (!remote)
		client_refuse_too_long();
	if (remote || options_parse(&o, scope, name, client_text(text), error, sizeof error) == 0)
		return 0;
	client_refuse(error);
	return -1;
}

static int check_hvd(int value, const char *text, int remote)
{
	(void)value;
	return check_text(SCOPE_HVD, "--hvd", text, remote);
}

static int check_bind(int value, const char *text, int remote)
{
	(void)value;
	if (!remote)
		client_note_binding();
	return check_text(SCOPE_BIND, "--hvd-bind", text, remote);
}

/* True the second time that a process comes somewhere: plugstack.conf has two lines of this library, as where a file is included twice. */
static bool is_second_line(bool *called)
{
	const bool again = *called;
	*called = true;
	return again;
}

/* The path of this file where another one of the plugin was loaded before it, as where an old copy stands in another directory; else NULL. */
static const char *second_copy(void)
{
	struct link_map *map = NULL;
	Dl_info info;

	if (!dladdr1(&site, &info, (void **)&map, RTLD_DL_LINKMAP))
		return NULL;
	for (bool found = false; (map = map->l_prev);) {
		void *library = *map->l_name ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		const char *name = library ? dlsym(library, "plugin_name") : NULL;
		found = name && !strcmp(name, plugin_name);
		if (library)
			dlclose(library);
		if (found)
			return info.dli_fname;
	}
	return NULL;
}

ENTRY int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	static bool called = false;
	char error[512];
	spank_context_t context = spank_context();
	/* slurmd may read plugstack.conf again, and find a newer file in the same place */
	const char *copy = context == S_CTX_SLURMD ? NULL : second_copy();

	if (copy) {
		site.enable = ENABLE_NEVER;
		slurm_error("hvd: plugstack.conf has two copies of this plugin: %s is ignored", copy);
		return 0;
	}
	if (context != S_CTX_SLURMD && is_second_line(&called)) {
		slurm_error("hvd: plugstack.conf has this plugin in two lines: the second one is ignored");
		return 0;
	}
	if (site_parse(&site, argc, argv, error, sizeof error))
		slurm_error("hvd: %s", error);
	if (site.enable == ENABLE_NEVER || context == S_CTX_SLURMD || context == S_CTX_JOB_SCRIPT)
		return 0;
	if (spank_option_register(spank, &hvd_option) || spank_option_register(spank, &bind_option)) {
		slurm_error("hvd: Slurm takes no more options: --hvd and --hvd-bind are not there");
		return 0;
	}
	return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR ? client_init(&site) : 0;
}

ENTRY int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
	(void)spank, (void)argc, (void)argv;
	return spank_context() == S_CTX_ALLOCATOR && site.enable != ENABLE_NEVER ? client_leave_for_job() : 0;
}

ENTRY int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
	static bool called = false;

	(void)argc, (void)argv;
	return site.enable == ENABLE_NEVER || is_second_line(&called) ? 0 : stepd_user_init(spank, &site);
}

ENTRY int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
	static bool called = false;

	(void)argc, (void)argv;
	return site.enable == ENABLE_NEVER || is_second_line(&called) ? 0 : stepd_task_init(spank);
}

ENTRY int slurm_spank_task_post_fork(spank_t spank, int argc, char *argv[])
{
	(void)argc, (void)argv;
	stepd_task_forked(spank);
	return 0;
}

ENTRY int slurm_spank_task_exit(spank_t spank, int argc, char *argv[])
{
	(void)argc, (void)argv;
	stepd_task_exit(spank);
	return 0;
}

ENTRY int slurm_spank_exit(spank_t spank, int argc, char *argv[])
{
	(void)argc, (void)argv;
	stepd_exit(spank);
	return 0;
}

/* Without an entry point of its own slurmd would load and unload the plugin again and again. */
ENTRY int slurm_spank_slurmd_exit(spank_t spank, int argc, char *argv[])
{
	(void)spank, (void)argc, (void)argv;
	return 0;
}
