/* SPDX-License-Identifier: Apache-2.0
 * AMX instructions where the processor has none: each is an illegal instruction, whose signal is answered by decoding it (Intel's SDM,
 * volume 2) and doing on amx_tiles.h's tiles what it asks for. So the object code that runs on a processor with AMX runs here, to the
 * last operand. On such a processor nothing is trapped. */
#ifndef TESTS_AMX_TRAP_H
#define TESTS_AMX_TRAP_H

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>

#include "engine/cpu/amx_tiles.h"

enum amx_instruction { TRAP_CONFIGURE, TRAP_RELEASE, TRAP_ZERO, TRAP_LOAD, TRAP_STORE, TRAP_DOT, N_TRAPS };
static atomic_ulong trapped[N_TRAPS];

/* How the instruction at the head is put together. */
struct vex {
	int map, prefix, w, l, extra; /* opcode map; 0, 66, F3, F2 as 0 to 3; extra: vvvv */
	int opcode, mod, reg, rm;
	const uint8_t *end;           /* behind the operands */
	char *address;                /* of the memory operand */
	greg_t index;                 /* the register that a tile's load takes for the bytes a row, times the scale */
};

static inline greg_t general(const ucontext_t *context, int number)
{
	static const int place[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
		                       REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
	return context->uc_mcontext.gregs[place[number]];
}

static inline int decode(const ucontext_t *context, struct vex *v)
{
	const uint8_t *at = (const uint8_t *)context->uc_mcontext.gregs[REG_RIP];
	if (at[0] != 0xc4)
		return 0;
	int r = !(at[1] & 0x80) << 3, x = !(at[1] & 0x40) << 3, b = !(at[1] & 0x20) << 3;
	*v = (struct vex){ .map = at[1] & 31, .w = at[2] >> 7, .extra = ~at[2] >> 3 & 15, .l = at[2] >> 2 & 1, .prefix = at[2] & 3, .opcode = at[3],
		           .mod = at[4] >> 6, .reg = (at[4] >> 3 & 7) | r, .rm = (at[4] & 7) | b };
	at += 5;
	if (v->mod != 3) {
		greg_t base = 0;
		int base_register = v->rm & 7, relative = 0;
		if (base_register == 4) {
			int sib = *at++, index = (sib >> 3 & 7) | x;
			base_register = sib & 7;
			v->index = index == 4 ? 0 : general(context, index) * (1 << (sib >> 6));
		} else if (base_register == 5 && v->mod == 0) {
			relative = 1;
		}
		if (!relative && !(base_register == 5 && v->mod == 0))
			base = general(context, base_register | b);
		int32_t far_off = 0;
		if (v->mod == 1)
			far_off = (int8_t)*at++;
		else if (v->mod == 2 || (v->mod == 0 && base_register == 5)) {
			memcpy(&far_off, at, sizeof far_off);
			at += sizeof far_off;
		}
		v->address = (char *)(base + (relative ? (greg_t)at : 0) + far_off);
	}
	v->end = at;
	return v->map == 2 && !v->w && !v->l;
}

static inline int obey(const struct vex *v)
{
	enum { NONE, P66, PF3, PF2 };
	int memory = v->mod != 3, kind;
	if (v->opcode == 0x49 && v->prefix == NONE && memory) {
		amx_configure((const void *)v->address);
		kind = TRAP_CONFIGURE;
	} else if (v->opcode == 0x49 && v->prefix == NONE && !v->reg && !v->rm) {
		amx_release();
		kind = TRAP_RELEASE;
	} else if (v->opcode == 0x49 && v->prefix == PF2 && !memory && !v->rm) {
		amx_zero(v->reg);
		kind = TRAP_ZERO;
	} else if (v->opcode == 0x4b && v->prefix == PF2 && memory && (v->rm & 7) == 4) {
		amx_load(v->reg, v->address, (ptrdiff_t)v->index);
		kind = TRAP_LOAD;
	} else if (v->opcode == 0x4b && v->prefix == PF3 && memory && (v->rm & 7) == 4) {
		amx_store(v->reg, v->address, (ptrdiff_t)v->index);
		kind = TRAP_STORE;
	} else if (v->opcode == 0x5c && v->prefix == PF3 && !memory) {
		amx_dot_bf16(v->reg, v->rm, v->extra);
		kind = TRAP_DOT;
	} else {
		return 0;
	}
	atomic_fetch_add_explicit(&trapped[kind], 1, memory_order_relaxed);
	return 1;
}

static void on_illegal_instruction(int number, siginfo_t *info, void *context)
{
	struct vex v;
	(void)info;
	if (decode(context, &v) && obey(&v))
		((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (greg_t)v.end;
	else
		signal(number, SIG_DFL);
}

static inline void trap_amx(void)
{
	struct sigaction action = { .sa_sigaction = on_illegal_instruction, .sa_flags = SA_SIGINFO };
	sigaction(SIGILL, &action, NULL);
}

#endif
