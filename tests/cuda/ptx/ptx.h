/* SPDX-License-Identifier: Apache-2.0
 * A GPU in software, for what nvcc made: the PTX in its objects is read and carried out on the CPU, warp by warp. What the shim
 * (../shim.h) cannot show shows here: the inline assembly, what the compiler moved across it, alignment, the room that a launch asked for,
 * every byte read that nobody wrote, every two threads that touch the same bytes with no barrier between, and what a kernel that is launched
 * early reads before what it reads is sure to be there. It has no time, and streams (cudart.cpp) do everything at once;
 * machine code is not looked at, only the PTX that it is made from: compute_80's, or compute_90a's, with wgmma. */
#ifndef TESTS_PTX_H
#define TESTS_PTX_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ptx {

enum { WARP = 32 };

enum class space : uint8_t { GLOBAL, SHARED, LOCAL, PARAM };
enum class flow : uint8_t { ON, BRANCH, EXIT, BARRIER, TOGETHER /* ON, by all lanes at once */ };

struct warp;
struct instruction;
typedef void (*action)(warp &w, const instruction &i, uint32_t lanes);

/* Operands are rows: 32 values, one a lane. Numbers and special registers have rows too, filled before the block starts. */
struct instruction {
	action run = nullptr;
	enum flow flow = flow::ON;
	enum space space = space::GLOBAL;
	bool guard_not = false, is_volatile = false, is_constant = false /* ld.global.nc */, is_signed = false, is_move = false /* which the assembler mostly gets rid of */, unpacks = false /* mov {a, b}, c */;
	uint8_t width = 0, count = 1; /* of a load or store: bytes of an element, elements */
	int guard = -1;               /* predicate, -1: none */
	int row[16] = {};             /* results first */
	std::vector<int> sums;        /* of wgmma: the rows that it adds to */
	int predicate[3] = {};
	int target = -1;              /* of a branch, an instruction */
	int64_t offset = 0;           /* of an address; a wait's groups */
	int file = 0, line = 0;
	const char *text = nullptr;   /* as it stands, for errors */
};

enum class special : uint8_t { TID_X, NTID_X, CTAID_X, NCTAID_X };

struct kernel {
	std::string name;
	std::vector<instruction> code;
	std::map<int, uint64_t> numbers;  /* row → what all lanes have there */
	std::map<int, special> specials;
	int rows = 0, predicates = 0;
	size_t param_bytes = 0, local_bytes = 0;
	unsigned threads_most = 1024;     /* .maxntid */
	std::vector<std::unique_ptr<std::string>> text;
	const std::map<int, std::string> *files = nullptr;
};

/* One object's kernels; a kernel is read when it is first asked for. */
class module {
public:
	explicit module(std::string source);
	const kernel *find(const std::string &name);

private:
	void read(kernel &k, size_t begin);
	std::string source, dynamic; /* the name of the dynamic shared memory */
	std::map<int, std::string> files;
	std::map<std::string, size_t> entries, functions; /* name → where its head begins */
	std::map<std::string, std::unique_ptr<kernel>> kernels;
};

/* How an instruction is carried out; NULL: the machine does not know it. */
action find_action(const std::string &opcode, enum flow *flow);

/* ---- memory: every allocation is known, and of each byte whether it was written ---- */

void *memory_allocate(size_t bytes);
/* False: nothing was allocated there. */
bool memory_free(void *p);
/* The program wrote (or copied to) the device's memory. */
void memory_written(void *p, size_t bytes);
/* As memcpy(), with what is known of each byte. */
void memory_copy(void *to, const void *from, size_t bytes);
bool memory_is_device(const void *p);

/* ---- running ---- */

struct limits {
	size_t shared_default = 48 * 1024, shared_most = 227 * 1024; /* a block's, without and with being asked for */
	unsigned sms = 4;                                             /* few, so that a block has more than one piece of work */
	int capability = 80;                                          /* of the PTX that is linked */
};
extern struct limits machine;
extern uint64_t machine_launches, machine_instructions;

/* A grid, and how it is launched. */
struct launch {
	unsigned blocks, threads;
	size_t shared_bytes;
	bool early;       /* it may begin before those in front of it have ended, as far as griddepcontrol.wait … */
	uint32_t settled; /* … but not before this launch, and all in front of that */
};

/* Runs a grid to its end. A fault (see the top) is told on standard error, with the place in the source, and ends the program. */
void run(const kernel &k, const launch &how, const void *params);

/* Does it now, or in every launch of the graph that is being captured. stream: cudaStream_t. */
void enqueue(void *stream, const std::function<void()> &what);

}

#endif
