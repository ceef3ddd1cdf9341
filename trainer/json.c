/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

static _Thread_local int refused;

static void *take(size_t size)
{
	void *memory = malloc(size);

	refused |= !memory;
	return memory;
}

__attribute__((constructor)) static void watch_memory(void)
{
	cJSON_InitHooks(&(cJSON_Hooks){ take, free });
}

void json_lacks(void)
{
	refused = 1;
}

char *json_finish(cJSON *object, int formatted)
{
	char *text = formatted ? cJSON_Print(object) : cJSON_PrintUnformatted(object);

	cJSON_Delete(object);
	if (refused) {
		cJSON_free(text);
		text = NULL;
	}
	refused = 0;
	return utf8_mend(text);
}

static int unprinted;

int json_unprinted(void)
{
	return unprinted;
}

int json_print(cJSON *object, int formatted, struct error *e)
{
	char *text = json_finish(object, formatted);

	if (!text)
		return fail(e, EXIT_INTERNAL, "no memory for the JSON text");
	errno = 0;
	if (puts(text) < 0 || fflush(stdout))
		unprinted = errno;
	cJSON_free(text);
	return 0;
}

int json_print_next(cJSON *object, int *printed, struct error *e)
{
	cJSON *array = cJSON_CreateArray();

	cJSON_AddItemToArray(array, object);
	char *text = json_finish(array, 1);

	if (!text)
		return fail(e, EXIT_INTERNAL, "no memory for the JSON text");
	printf("%s%.*s", *printed ? ", " : "[", (int)strlen(text) - 2, text + 1);
	*printed = 1;
	cJSON_free(text);
	return 0;
}

cJSON *json_parse(const char *text, size_t size, int whole, const char **end)
{
	int before = refused;

	refused = 0;
	cJSON *object = cJSON_ParseWithLengthOpts(text, size, end, whole);
	errno = object ? errno : refused ? ENOMEM : EBADMSG;
	refused = before;
	return object;
}
