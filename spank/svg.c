/* SPDX-License-Identifier: Apache-2.0 */
#include "svg.h"

#include <string.h>

#include "cores.h"
#include "explain.h"

enum { MARGIN = 16, BOX = 168, BOX_HEIGHT = 62, GAP = 12, COLUMNS = 4, TITLE = 44, CHARACTER = 8, TASK_COLOURS = 8 };

static const char *const colours[TASK_COLOURS] = { "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f" };

static int rows_of(int boxes)
{
	return (boxes + COLUMNS - 1) / COLUMNS;
}

/* The first task that uses the GPU or a part of it, -1 none; *others: how many more do. */
static int task_of(const struct request *r, const struct plan *plan, int gpu, int *others)
{
	int first = -1, users = 0;

	for (int t = 0; t < plan->tasks; t++) {
		bool uses = false;
		for (int d = 0; d < plan->task[t].devices; d++)
			uses |= r->device[plan->task[t].device[d]] == gpu;
		if (uses && !users++)
			first = t;
	}
	*others = users - 1;
	return first;
}

/* Names come from files and from users. */
static void put_text(FILE *out, const char *text)
{
	for (; *text; text++)
		if (*text == '<' || *text == '&')
			fputs(*text == '<' ? "&lt;" : "&amp;", out);
		else
			putc((unsigned char)*text < ' ' ? '?' : *text, out);
}

static void draw_box(FILE *out, int n, int y, const char *colour, const char *kind, const char *name, const char *note)
{
	int x = 2 * MARGIN + n % COLUMNS * (BOX + GAP), top = y + n / COLUMNS * (BOX_HEIGHT + GAP);
	fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\"/>\n", x, top, BOX, BOX_HEIGHT, colour);
	fprintf(out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s ", x + 8, top + 22, kind);
	put_text(out, name);
	fprintf(out, "</text>\n<text x=\"%d\" y=\"%d\">%s</text>\n", x + 8, top + 44, note);
}

static int draw_gpus(FILE *out, const struct node *node, const struct request *r, const struct plan *plan, int package, int y)
{
	int boxes = 0;
	for (int g = 0; g < node->gpus; g++) {
		char note[64] = "idle";
		int others, task = task_of(r, plan, g, &others);
		if (node->gpu[g].at.package != package)
			continue;
		if (task >= 0 && others)
			snprintf(note, sizeof note, "task %d and %d other%s", task, others, others == 1 ? "" : "s");
		else if (task >= 0)
			snprintf(note, sizeof note, "task %d, %d thread%s", task, plan->task[task].threads, plan->task[task].threads == 1 ? "" : "s");
		draw_box(out, boxes++, y, task >= 0 ? colours[task % TASK_COLOURS] : "#bab0ac", "GPU", node->gpu[g].at.pci, note);
	}
	return boxes;
}

static int draw_nics(FILE *out, const struct node *node, const struct plan *plan, int package, int boxes, int y)
{
	for (int n = 0; n < node->nics; n++) {
		char note[256] = "";
		int used = 0;
		if (node->nic[n].at.package != package)
			continue;
		for (int t = 0; t < plan->tasks; t++)
			used += plan->task[t].nic == n;
		snprintf(note, sizeof note, "%d task%s", used, used == 1 ? "" : "s");
		draw_box(out, boxes++, y, "#d7d5d2", "NIC", node->nic[n].name, note);
	}
	return boxes;
}

static int boxes_of(const struct node *node, int package)
{
	int boxes = 0;
	for (int g = 0; g < node->gpus; g++)
		boxes += node->gpu[g].at.package == package;
	for (int n = 0; n < node->nics; n++)
		boxes += node->nic[n].at.package == package;
	return boxes;
}

static int package_height(const struct node *node, int package)
{
	return TITLE + rows_of(boxes_of(node, package)) * (BOX_HEIGHT + GAP) + GAP;
}

static void draw_package(FILE *out, const struct node *node, const struct request *r, const struct plan *plan, int package, int y)
{
	const struct cpuset *cpus = package < 0 ? &node->allowed : &node->package[package].cpus;
	struct cpuset cores = cores_of(node, cpus), memory = memory_of(node, cpus);
	char list[128], nodes[64];

	fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#f6f5f3\" stroke=\"#79706e\"/>\n", MARGIN, y,
		COLUMNS * (BOX + GAP) + MARGIN, package_height(node, package));
	if (package < 0)
		fprintf(out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">socket not known</text>\n", 2 * MARGIN, y + 26);
	else
		fprintf(out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">socket %d: %d core%s, CPUs %s, NUMA %s</text>\n", 2 * MARGIN, y + 26, node->package[package].id,
			cpuset_count(&cores), cpuset_count(&cores) == 1 ? "" : "s", cpulist_print(cpus, list, sizeof list), cpulist_print(&memory, nodes, sizeof nodes));
	draw_nics(out, node, plan, package, draw_gpus(out, node, r, plan, package, y + TITLE), y + TITLE);
}

void draw_svg(FILE *out, const struct node *node, const struct request *request, const struct plan *plan)
{
	int first = boxes_of(node, -1) ? -1 : 0, height = MARGIN, y = MARGIN;
	int width = COLUMNS * (BOX + GAP) + 3 * MARGIN;
	char line[EXPLAIN_LINE];

	for (int p = first; p < node->packages; p++)
		height += package_height(node, p) + GAP;
	for (int t = 0; t < plan->tasks; t++) {
		int needed = CHARACTER * (int)strlen(explain_task(node, request, plan, t, line, sizeof line)) + 8 * MARGIN;
		width = needed > width ? needed : width;
	}
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"14\">\n",
		width, height + 20 * plan->tasks + MARGIN);
	fprintf(out, "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
	for (int p = first; p < node->packages; p++) {
		draw_package(out, node, request, plan, p, y);
		y += package_height(node, p) + GAP;
	}
	for (int t = 0; t < plan->tasks; t++) {
		fprintf(out, "<text x=\"%d\" y=\"%d\"><tspan fill=\"%s\">&#9632;</tspan> task %d: ", MARGIN, y + 20 * t + 14, colours[t % TASK_COLOURS], t);
		put_text(out, explain_task(node, request, plan, t, line, sizeof line));
		fputs("</text>\n", out);
	}
	fprintf(out, "</svg>\n");
}
