/* SPDX-License-Identifier: Apache-2.0 */
#include "commands/bench_plan.h"

#include <stdio.h>

#include "commands/network_options.h"
#include "json.h"
#include "learn/batch_memory.h"
#include "learn/log.h"

enum { LARGEST = 1 << 15 }; /* where the search ends */

struct plan {
	const struct model_conf *conf;
	struct batch_memory memory;
	struct engine_room room; /* at conf->batch */
	double total;            /* bytes: of the room, and of resident images */
	size_t resident;         /* images */
	double budget;           /* bytes; 0: nobody says */
	int largest;
};

static void print_json(const struct plan *p, struct error *e)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "model", p->memory.plan.model);
	cJSON_AddStringToObject(o, "gpu", p->room.gpu);
	cJSON_AddStringToObject(o, "precision", precision_choices[p->conf->precision]);
	json_number(o, "image_size", p->memory.plan.image_size);
	json_number(o, "batch", p->conf->batch);
	json_number(o, "parameters_mib", (double)p->room.parameters / 1048576);
	json_number(o, "optimiser_mib", (double)p->room.optimiser / 1048576);
	json_number(o, "maps_mib", (double)p->room.maps / 1048576);
	json_number(o, "workspace_mib", (double)p->room.workspace / 1048576);
	json_number(o, "resident_mib", p->memory.resident / 1048576);
	json_number(o, "total_mib", p->total / 1048576);
	json_number(o, "image_mib", p->memory.image / 1048576);
	json_number(o, "memory_mib", p->room.memory / 1048576);
	json_number(o, "budget_mib", p->budget / 1048576);
	if (p->budget > 0) {
		cJSON_AddBoolToObject(o, "fits", p->total <= p->budget);
		json_number(o, "largest_batch", p->largest);
		json_number(o, "auto_batch", batch_memory_auto(p->largest));
	}
	if (*p->room.note)
		cJSON_AddStringToObject(o, "note", p->room.note);
	json_print(o, 0, e);
}

static void print_row(const char *what, double bytes, const char *remark)
{
	printf("  %-34s %10.1f MiB%s\n", what, bytes / 1048576, remark);
}

static void print_text(const struct plan *p)
{
	const struct engine_room *r = &p->room;
	char slope[64], kept[64];

	snprintf(slope, sizeof slope, ", %.2f MiB an image", p->memory.image / 1048576);
	printf("%s, %s, %d pixels, batch %d, planned for %s\n", p->memory.plan.model, precision_choices[p->conf->precision], p->memory.plan.image_size, p->conf->batch, r->gpu);
	print_row("parameters, gradients, copies", (double)r->parameters, "");
	print_row("optimiser", (double)r->optimiser, "");
	print_row("images, maps, their gradients", (double)r->maps, slope);
	print_row("cuDNN's workspace", (double)r->workspace, *r->note ? " (not counted)" : "");
	snprintf(kept, sizeof kept, ", %zu of them", p->resident);
	if (p->resident)
		print_row("resident images", p->memory.resident, kept);
	print_row("total", p->total, "");
	if (*r->note)
		printf("%s\n", r->note);
	if (p->budget <= 0)
		return;
	printf("%.1f GiB of memory, %d %% left to others: ", r->memory / 0x1p30, BATCH_SPARE_PERCENT);
	if (p->largest)
		printf("%s; the largest batch that fits is %d%s, --batch=auto takes %d\n", p->total <= p->budget ? "this fits" : "this does not fit", p->largest,
		       p->largest == LARGEST ? " or more" : "", batch_memory_auto(p->largest));
	else
		printf("not even one image fits\n");
}

int bench_plan(const struct net_conf *net, const struct model_conf *conf, const char *gpu, size_t resident, int json, struct error *e)
{
	struct plan p = { .conf = conf, .resident = resident };

	if (batch_memory_open(&p.memory, net, ENGINE_CUDA, conf, gpu, 0, resident, e) == 0 && batch_memory_bytes(&p.memory, conf->batch, &p.total, &p.room, e) == 0) {
		p.budget = p.room.memory * (100 - BATCH_SPARE_PERCENT) / 100;
		if (p.budget <= 0 || batch_memory_largest(&p.memory, p.budget, LARGEST, &p.largest, e) == 0)
			json ? print_json(&p, e) : print_text(&p);
	}
	batch_memory_close(&p.memory);
	return e->code ? -e->code : 0;
}
