/* SPDX-License-Identifier: Apache-2.0 */
#include "net/plan.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "net/builder.h"

int net_plan_make(struct net_plan *plan, const struct net_conf *conf, struct error *e)
{
	*plan = (struct net_plan){ .image_size = conf->image_size, .classes = conf->classes };
	snprintf(plan->model, sizeof plan->model, "%s", conf->model);
	if (conf->image_size < 1 || conf->image_size > 4096)
		return fail(e, EXIT_USAGE, "image size %d: use 1 to 4096 pixels", conf->image_size);
	if (conf->classes < 1 || conf->classes > 65536)
		return fail(e, EXIT_USAGE, "%d classes: use 1 to 65536", conf->classes);
	struct net_builder b = { .plan = plan, .error = e };
	plan->family = !strncmp(conf->model, "resnet", 6) ? NET_RESNET : NET_DENSENET;
	int rc = (plan->family == NET_RESNET ? net_build_resnet : net_build_densenet)(&b, conf);
	if (rc)
		net_plan_free(plan);
	return rc;
}

void net_plan_free(struct net_plan *plan)
{
	free(plan->params);
	free(plan->bns);
	free(plan->layers);
	*plan = (struct net_plan){ 0 };
}

int net_param_find(const struct net_plan *plan, const char *name)
{
	for (int i = 0; i < plan->n_params; i++)
		if (!strcmp(plan->params[i].name, name))
			return i;
	return -1;
}

int net_param_is_head(const struct net_plan *plan, const char *name)
{
	return net_param_find(plan, name) >= plan->n_params - 2;
}
