/* SPDX-License-Identifier: Apache-2.0
 * Included before everything else by the objects of test_fp64_*: the same sources with double for every float, so that what is
 * left of a difference to the reference is a mistake and not rounding. System headers come first: they declare real floats. */
#ifndef TESTS_FP64_H
#define TESTS_FP64_H

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define float double
#define sqrtf sqrt
#define expf exp
#define logf log
#define fabsf fabs
#define fmaxf fmax

#endif
