/* SPDX-License-Identifier: Apache-2.0 */
#include "report/parts.h"

#include <stdio.h>
#include <string.h>

#include "learn/log.h"

const char *finding_title(int finding, char text[32])
{
	snprintf(text, 32, "%s", finding_names[finding]);
	for (char *c = text; *c; c++)
		if (*c == '_')
			*c = ' ';
	return text;
}

const double *report_oracle(const struct report *r)
{
	const struct provenance *about = &r->in->predictions->about;

	return about->has_oracle ? about->oracle :
	       r->in->log && r->in->log->has_oracle && (!*about->source || source_is_synthetic(about->source)) ? r->in->log->oracle : NULL;
}

void json_interval(cJSON *o, const char *name, const struct interval *v)
{
	cJSON *x = cJSON_AddObjectToObject(o, name);

	json_number(x, "value", v->value);
	json_bounds(x, v);
}
