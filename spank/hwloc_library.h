/* SPDX-License-Identifier: Apache-2.0
 * hwloc, opened at run time: Slurm's clients never load it, and a node without it can say so. */
#ifndef SPANK_HWLOC_LIBRARY_H
#define SPANK_HWLOC_LIBRARY_H

#include <hwloc.h>
#include <stddef.h>

/* The functions of hwloc.h that are used here, under the same names without hwloc_. */
extern struct hwloc_functions {
	__typeof__(hwloc_get_api_version) *get_api_version;
	__typeof__(hwloc_topology_init) *topology_init;
	__typeof__(hwloc_topology_destroy) *topology_destroy;
	__typeof__(hwloc_topology_load) *topology_load;
	__typeof__(hwloc_topology_set_xmlbuffer) *topology_set_xmlbuffer;
	__typeof__(hwloc_topology_set_flags) *topology_set_flags;
	__typeof__(hwloc_topology_set_io_types_filter) *topology_set_io_types_filter;
	__typeof__(hwloc_topology_set_cache_types_filter) *topology_set_cache_types_filter;
	__typeof__(hwloc_topology_set_components) *topology_set_components;
	__typeof__(hwloc_topology_get_allowed_cpuset) *topology_get_allowed_cpuset;
	__typeof__(hwloc_bitmap_next) *bitmap_next;
	__typeof__(hwloc_get_type_depth) *get_type_depth;
	__typeof__(hwloc_get_obj_by_depth) *get_obj_by_depth;
} hwloc;

/* Fills `hwloc`. Returns what hwloc_library_close() takes, or NULL with one line in error. */
void *hwloc_library_open(char *error, size_t size);
void hwloc_library_close(void *library);

/* A new topology of what the XML says, or of the running machine with xml == NULL, for hwloc.topology_destroy(). No
 * plugin of hwloc's is opened, and no variable of the environment is heard. NULL: the text is no topology. */
hwloc_topology_t hwloc_load(const char *xml, size_t length);

#endif
