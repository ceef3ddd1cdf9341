# slurm-hvd: from a Slurm command line to a finished model.
#
#   make            build what can be built from what is installed, and say what is left out
#   make deps       list the packages that are missing (make deps INSTALL=1 installs them)
#   make demo       private two-node Slurm cluster, synthetic chest X-rays, one training job
#   make check      all the tests (SAN=1: with AddressSanitizer and UBSan; SAN=thread: with ThreadSanitizer and UBSan)
#   make fuzz       every parser of foreign bytes for SECONDS_EACH (default 60) seconds, those of the runtime together, with sanitizers
#   make bench      the measurements behind every performance claim
#   make install    into DESTDIR and prefix; the plugin goes to Slurm's plugin directory
#
# Useful variables: BUILD, CC, CFLAGS, DEBUG=1, SAN=1|thread, STRICT=1 (a warning is an error; `make check` sets it), prefix, slurm_plugindir, SLURM_HOME,
# PMIX_HOME and HWLOC_HOME (prefixes of a Slurm, PMIx and hwloc that are not the system's), CUDA_HOME.
# What is built already stays as it is with another CC, CFLAGS or DEBUG: make clean first, or name another BUILD.

SHELL       := /bin/bash
MAKEFLAGS   += --no-builtin-rules
VERSION     := 0.1.0

ifdef SAN
BUILD       ?= build/$(if $(filter thread,$(SAN)),t)san
else
BUILD       ?= build
endif
ifneq ($(words $(BUILD)),1)
$(error BUILD='$(BUILD)': make needs one path without spaces)
endif

# PREFIX is taken for it on the command line only: in the environment it often means something else
prefix      ?= $(if $(filter command,$(origin PREFIX)),$(PREFIX),/usr/local)
bindir      ?= $(prefix)/bin
libdir      ?= $(prefix)/lib
includedir  ?= $(prefix)/include
mandir      ?= $(prefix)/share/man
docdir      ?= $(prefix)/share/doc/slurm-hvd
sysconfdir  ?= /etc
DESTDIR     ?=

CC          := $(if $(filter default,$(origin CC)),gcc,$(CC))
OPTIMISE    := $(if $(DEBUG),-Og,-O2)
CFLAGS      ?= -g $(OPTIMISE)
WARNINGS    := -Wall -Wextra $(if $(STRICT),-Werror) -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
HARDEN      := -fstack-protector-strong -fPIC $(if $(SAN)$(DEBUG)$(findstring _FORTIFY_SOURCE,$(CFLAGS)),,$(if $(filter-out -O0,$(lastword $(filter -O%,$(CFLAGS)))),-D_FORTIFY_SOURCE=2))
HARDEN_LINK := -Wl,-z,relro,-z,now -Wl,-z,noexecstack
, := ,
SANITIZER   := $(if $(filter thread,$(SAN)),thread,address)
SANITIZE    := $(if $(SAN),-fsanitize=$(SANITIZER)$(,)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
# What a .d names: with a whole path in BUILD once and not the next time, or with ./ before it, which make takes away, or with a slash more, headers are looked at all the same.
MADE         = -MT '$(patsubst $(BUILD:./%=%)/%,$$(BUILD)/%,$@)'
ALL_CFLAGS   = -std=c11 -D_GNU_SOURCE $(HOMES_CFLAGS) -DHVD_VERSION='"$(VERSION)"' $(WARNINGS) $(HARDEN) $(CFLAGS) $(SANITIZE) -MMD -MP $(MADE)
ALL_LDFLAGS  = $(HARDEN_LINK) $(SANITIZE) $(LDFLAGS)

# ---- what is there -------------------------------------------------------------------------------
hash        := \#
# what is not the system's own: Slurm is found by the scontrol in PATH, too
home         = $(if $(wildcard $($(1))/include/$(2)),$(filter-out /usr,$($(1))),$(if $(filter command,$(origin $(1))),$(error $(1)=$($(1)): there is no include/$(2))))
SLURM_HOME  ?= $(patsubst %/bin/scontrol,%,$(realpath $(shell command -v scontrol)))
SLURM       := $(call home,SLURM_HOME,slurm/spank.h)
PMIX        := $(call home,PMIX_HOME,pmix.h)
HWLOC       := $(call home,HWLOC_HOME,hwloc.h)
HOMES_CFLAGS := $(patsubst %,-isystem %/include,$(SLURM) $(PMIX) $(HWLOC))
# dlopen() looks there before it looks where the system has its libraries
run_path     = $(addprefix -Wl$(,)-rpath$(,),$(if $(1),$(wildcard $(1)/lib64 $(1)/lib)))
has_header   = $(shell printf '$(hash)include <%s>\n' stddef.h stdio.h '$(1)' | $(CC) $(HOMES_CFLAGS) $(2) -E -x c - >/dev/null 2>&1 && echo y)
# as Slurm numbers its releases, in hexadecimal; nothing where it is older than 22.05
SLURM_NUMBER := $(filter 0x%,$(shell printf '$(hash)include <slurm/slurm.h>\n$(hash)if SLURM_VERSION_NUMBER >= 0x160500\nSLURM_VERSION_NUMBER\n$(hash)endif\n' | \
               $(CC) $(HOMES_CFLAGS) -E -x c - 2>/dev/null | tail -n 1))
HAVE_SLURM  := $(and $(call has_header,slurm/spank.h),$(SLURM_NUMBER),y)
HAVE_HWLOC  := $(call has_header,hwloc.h)
PMIX_CFLAGS := $(if $(PMIX),,$(addprefix -I,$(firstword $(wildcard /usr/lib/*/pmix2/include /usr/lib64/pmix/include))))
HAVE_PMIX   := $(call has_header,pmix.h,$(PMIX_CFLAGS))
# only the tests and benchmarks measure the trainer against oneDNN; the API changed in its release 3, and 2.4 is the first with scale and shift in two
HAVE_DNNL   := $(shell printf '$(hash)include <oneapi/dnnl/dnnl.h>\n$(hash)if DNNL_VERSION_MAJOR * 100 + DNNL_VERSION_MINOR < 204 || DNNL_VERSION_MAJOR > 3\n$(hash)error\n$(hash)endif\n' | $(CC) -E -x c - >/dev/null 2>&1 && echo y)
HAVE_JPEG   := $(and $(call has_header,turbojpeg.h),$(call has_header,jpeglib.h))
HAVE_SPNG   := $(call has_header,spng.h)
HAVE_DEFLATE:= $(call has_header,libdeflate.h)
HAVE_CJSON  := $(call has_header,cjson/cJSON.h)
HAVE_CMOCKA := $(call has_header,cmocka.h,-include stdarg.h -include stdint.h -include setjmp.h)
CUDA_HOME   ?= $(firstword $(wildcard /usr/local/cuda))
NVCC        ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc))
HAVE_NCCL   := $(call has_header,nccl.h,$(if $(CUDA_HOME),-I$(CUDA_HOME)/include))

HAVE_TRAINER := $(and $(HAVE_JPEG),$(HAVE_SPNG),$(HAVE_DEFLATE),$(HAVE_CJSON),y)

LEFT_OUT :=
ifneq ($(HAVE_SLURM)$(HAVE_HWLOC),yy)
LEFT_OUT += "spank_hvd.so: no slurm/spank.h of Slurm 22.05 or later, or no hwloc.h (Debian: libslurm-dev libhwloc-dev; where they have prefixes of their own: make SLURM_HOME=DIR HWLOC_HOME=DIR)"
endif
ifneq ($(HAVE_HWLOC),y)
LEFT_OUT += "hvd-map: no hwloc.h (Debian: libhwloc-dev; make HWLOC_HOME=DIR)"
endif
ifneq ($(HAVE_PMIX),y)
LEFT_OUT += "libhvd.so, chexnet: no pmix.h (Debian: libpmix-dev; make PMIX_HOME=DIR)"
endif
ifneq ($(HAVE_TRAINER),y)
LEFT_OUT += "chexnet: one of turbojpeg, jpeglib, spng, libdeflate, cJSON is missing (make deps names them)"
endif
ifneq ($(HAVE_DNNL),y)
LEFT_OUT += "oneDNN, which tests and benchmarks compare the CPU engine with: no oneDNN from 2.4 to 3 (Debian: libdnnl-dev)"
endif
ifneq ($(HAVE_NCCL),y)
LEFT_OUT += "NCCL back end of libhvd.so: no nccl.h (it comes with CUDA or libnccl-dev)"
endif
# without a compiler every header seems to be missing
ifneq ($(call has_header,stdlib.h),y)
LEFT_OUT := "everything: $(CC) cannot compile here (Debian: gcc libc6-dev)"
endif

# ---- parts ---------------------------------------------------------------------------------------
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

# spank/: the core is shared by the plugin, hvd-map and the tests; only the plugin knows Slurm
SPANK_CORE  := $(filter-out spank/spank_hvd.c spank/client%.c spank/slurm_nodes.c spank/step.c spank/stepd.c spank/task.c spank/variables.c spank/hvd_map.c,$(wildcard spank/*.c))
SPANK_SRC   := $(filter-out spank/hvd_map.c spank/svg.c spank/selfcheck.c spank/gres_conf.c,$(wildcard spank/*.c))

RUNTIME_TOOLS := runtime/hvd_bench.c runtime/hvd_trace.c runtime/transport.c runtime/predict.c
RUNTIME_SRC := $(filter-out $(RUNTIME_TOOLS) $(if $(HAVE_NCCL),,runtime/backend_nccl.c runtime/nccl_api.c runtime/stamps.c),$(wildcard runtime/*.c))

BASELINE_SRC := trainer/engine/cpu/baseline.c
TRAINER_SRC := $(filter-out trainer/chexnet.c $(BASELINE_SRC),$(wildcard trainer/*.c trainer/commands/*.c trainer/net/*.c \
               trainer/engine/*.c trainer/engine/reference/*.c trainer/engine/cpu/*.c trainer/engine/cuda/library.c trainer/files/*.c trainer/image/*.c \
               trainer/data/*.c trainer/prepare/*.c trainer/learn/*.c trainer/report/*.c))

TESTS_SRC   := $(wildcard tests/unit/test_*.c)

TARGETS :=
ifeq ($(HAVE_SLURM)$(HAVE_HWLOC),yy)
TARGETS += $(if $(wildcard spank/spank_hvd.c),$(BUILD)/spank_hvd.so)
endif
ifeq ($(HAVE_HWLOC),y)
TARGETS += $(if $(wildcard spank/hvd_map.c),$(BUILD)/hvd-map)
endif
ifeq ($(HAVE_PMIX),y)
TARGETS += $(if $(wildcard runtime/hvd.h),$(BUILD)/libhvd.so) $(if $(wildcard runtime/hvd_bench.c),$(BUILD)/hvd-bench $(BUILD)/hvd-trace)
ifeq ($(HAVE_TRAINER),y)
TARGETS += $(if $(wildcard trainer/chexnet.c),$(BUILD)/chexnet)
endif
endif

.PHONY: all spank runtime trainer tests deps demo check fuzz bench install uninstall clean left-out
all: $(TARGETS) left-out
spank: $(filter %/spank_hvd.so %/hvd-map,$(TARGETS))
runtime: $(filter %/libhvd.so %/hvd-bench %/hvd-trace,$(TARGETS))
trainer: $(filter %/chexnet,$(TARGETS))

left-out:
	@for line in $(LEFT_OUT); do echo "left out: $$line"; done

$(BUILD)/obj/%.o: %.c $(BUILD)/obj/made-with-version
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(PART_CFLAGS) -c -o $@ $<

# What objects are made with that no file's date tells, as a package's headers keep the package's: where it is another than
# it was, they are made anew. Where it is not there they are left alone: `make install` may be told less than `make` was.
define made_with # WHAT,VALUE,OBJECTS
ifneq ($(2),)
$(3): $(BUILD)/obj/made-with-$(1)
$(BUILD)/obj/made-with-$(1):
	@mkdir -p $$(@D) && echo '$(2)' >$$@
ifneq ($(2),$(shell cat $(BUILD)/obj/made-with-$(1) 2>/dev/null))
.PHONY: $(BUILD)/obj/made-with-$(1)
endif
endif
endef
$(eval $(call made_with,version,$(VERSION)))
$(eval $(call made_with,slurm,$(SLURM_NUMBER),$(call objects,$(SPANK_SRC)) $(SPANK_SRC:%.c=$(BUILD)/plugin/%.o) $(call objects,$(filter tests/unit/test_plugin_%,$(TESTS_SRC)))))
$(eval $(call made_with,nccl,$(HAVE_NCCL),$(call objects,$(RUNTIME_SRC) $(filter tests/unit/test_runtime_%,$(TESTS_SRC)))))

$(BUILD)/obj/spank/%.o:   PART_CFLAGS = -fvisibility=hidden
$(BUILD)/obj/runtime/%.o: PART_CFLAGS = -fvisibility=hidden -pthread $(PMIX_CFLAGS) $(if $(HAVE_NCCL),-DHAVE_NCCL=1 $(if $(CUDA_HOME),-isystem $(CUDA_HOME)/include))
$(BUILD)/obj/trainer/%.o: PART_CFLAGS = -Itrainer -Iruntime -pthread -fopenmp -O3 -Wno-psabi
$(BUILD)/obj/tests/%.o:   PART_CFLAGS = -I. -Itrainer -Iruntime -Ispank $(if $(HAVE_NCCL),-DHAVE_NCCL=1 $(if $(CUDA_HOME),-isystem $(CUDA_HOME)/include)) -pthread -fopenmp

# Slurm's programs load the plugin, and they are built without a sanitizer's library in front: the plugin has UBSan alone.
PLUGIN_OBJECTS := $(if $(SAN),$(patsubst %.c,$(BUILD)/plugin/%.o,$(SPANK_SRC)),$(call objects,$(SPANK_SRC)))
$(BUILD)/plugin/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(subst $(SANITIZER)$(,),,$(ALL_CFLAGS)) -fvisibility=hidden -c -o $@ $<
$(BUILD)/spank_hvd.so: $(PLUGIN_OBJECTS) spank/spank_hvd.lds
	$(CC) $(subst $(SANITIZER)$(,),,$(ALL_LDFLAGS)) -shared -Wl,--version-script=spank/spank_hvd.lds $(call run_path,$(HWLOC)) -o $@ $(filter %.o,$^) -ldl

$(BUILD)/hvd-map: $(call objects,spank/hvd_map.c $(SPANK_CORE))
	$(CC) $(ALL_LDFLAGS) $(call run_path,$(HWLOC)) -o $@ $^ -ldl

$(BUILD)/libhvd.so.0: $(call objects,$(RUNTIME_SRC))
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,libhvd.so.0 $(call run_path,$(PMIX)) -o $@ $^ -pthread -ldl -lrt
$(BUILD)/libhvd.so: $(BUILD)/libhvd.so.0
	ln -sf libhvd.so.0 $@

$(BUILD)/hvd-bench: $(call objects,runtime/hvd_bench.c runtime/transport.c runtime/predict.c runtime/planner.c runtime/plan_file.c) $(BUILD)/libhvd.so
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib:$$ORIGIN/../$$LIB' -pthread -lm

$(BUILD)/hvd-trace: $(call objects,runtime/hvd_trace.c)
	$(CC) $(ALL_LDFLAGS) -o $@ $^

EXAMPLES := $(if $(HAVE_PMIX),$(patsubst contrib/examples/%.c,$(BUILD)/examples/%,$(wildcard contrib/examples/*.c)))
$(BUILD)/obj/contrib/%.o: PART_CFLAGS = -Iruntime
$(BUILD)/examples/%: $(BUILD)/obj/contrib/examples/%.o $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..'

TRAINER_LIBS := -lturbojpeg -ljpeg -lspng -ldeflate -lcjson -fopenmp -pthread -lm -ldl
$(BUILD)/chexnet: $(call objects,trainer/chexnet.c $(TRAINER_SRC)) $(BUILD)/libhvd.so
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib:$$ORIGIN/../$$LIB' $(TRAINER_LIBS)

# ---- tests ---------------------------------------------------------------------------------------
# A unit test is tests/unit/test_PART_subject.c; PART says which objects it is linked with.
TEST_BINS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(TESTS_SRC))
ifneq ($(HAVE_CMOCKA),y)
TEST_BINS :=
LEFT_OUT += "unit tests: no cmocka.h (Debian: libcmocka-dev)"
endif
ifneq ($(HAVE_HWLOC),y)
TEST_BINS := $(filter-out %/test_spank_%,$(TEST_BINS))
endif
ifneq ($(HAVE_SLURM)$(HAVE_HWLOC),yy)
TEST_BINS := $(filter-out %/test_plugin_%,$(TEST_BINS))
endif
ifneq ($(HAVE_PMIX),y)
TEST_BINS := $(filter-out %/test_runtime_% %/test_trainer_%,$(TEST_BINS))
endif
ifneq ($(HAVE_TRAINER),y)
TEST_BINS := $(filter-out %/test_trainer_% %/test_fp64_%,$(TEST_BINS))
endif

$(BUILD)/tests/test_spank_%: $(BUILD)/obj/tests/unit/test_spank_%.o $(call objects,$(SPANK_CORE))
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) $(call run_path,$(HWLOC)) -o $@ $(filter %.o,$^) -lcmocka -ldl -lm
# The plugin's calls go through the test, which counts them and makes them fail.
PLUGIN_WRAPS := malloc calloc strdup open openat opendir fstat stat read gethostname access dlopen dlclose dlsym sched_setaffinity sched_getaffinity syscall
$(BUILD)/tests/test_plugin_%: $(BUILD)/obj/tests/unit/test_plugin_%.o $(call objects,$(SPANK_SRC))
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) $(addprefix -Wl$(,)--wrap=,$(PLUGIN_WRAPS)) $(call run_path,$(HWLOC)) -o $@ $(filter %.o,$^) -lcmocka -ldl
$(BUILD)/tests/test_runtime_%: $(BUILD)/obj/tests/unit/test_runtime_%.o $(call objects,$(RUNTIME_SRC) runtime/transport.c runtime/predict.c)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) $(call run_path,$(PMIX)) -o $@ $(filter %.o,$^) -lcmocka -pthread -ldl -lrt -lm
# The mesh on simulated links, in simulated time (tests/unit/simulation.h).
SIMULATED := pthread_mutex_lock pthread_mutex_unlock pthread_cond_broadcast pthread_join clock_gettime usleep eventfd eventfd_write eventfd_read close shutdown poll __poll_chk send sendmsg recvmsg getsockopt fcntl kill
$(BUILD)/tests/test_runtime_histories: $(call objects,tests/unit/test_runtime_histories.c runtime/mesh.c runtime/fault.c runtime/watch.c runtime/recover.c runtime/wire.c runtime/chain.c runtime/reduce.c runtime/world.c)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) $(addprefix -Wl$(,)--wrap=,$(SIMULATED)) -o $@ $^ -lcmocka -ldl -lm
$(BUILD)/tests/test_runtime_nccl $(BUILD)/tests/test_runtime_nccl_losses $(BUILD)/tests/test_runtime_stamps: private override LDFLAGS += -Wl,--wrap=nccl_bind,--wrap=driver_bind
$(BUILD)/tests/test_trainer_%: $(BUILD)/obj/tests/unit/test_trainer_%.o $(call objects,$(TRAINER_SRC) $(if $(HAVE_DNNL),$(BASELINE_SRC))) $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..' -lcmocka $(TRAINER_LIBS) $(if $(HAVE_DNNL),-ldnnl)

$(BUILD)/tests/test_runtime_stamps: private override LDFLAGS += $(if $(HAVE_NCCL),-Wl$(,)--wrap=clock_gettime)
$(BUILD)/tests/test_runtime_measured: private override LDFLAGS += -Wl,--wrap=clock_gettime,--wrap=sched_yield
$(BUILD)/tests/test_runtime_traces: private override LDFLAGS += -Wl,--wrap=posix_fallocate
$(BUILD)/tests/test_runtime_few_files: private override LDFLAGS += -Wl,--wrap=getrandom
$(BUILD)/tests/test_runtime_links: private override LDFLAGS += -Wl,--wrap=connect
$(BUILD)/tests/test_runtime_net: private override LDFLAGS += -Wl,--wrap=getifaddrs,--wrap=freeifaddrs
$(BUILD)/tests/test_runtime_stopped: private override LDFLAGS += -Wl,--wrap=lived
$(BUILD)/tests/test_runtime_memory: private override LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
$(BUILD)/tests/test_runtime_rebuild: private override LDFLAGS += -Wl,--wrap=queue_reset,--wrap=calloc
$(BUILD)/tests/test_trainer_window: private override LDFLAGS += -Wl,--wrap=pread,--wrap=__pread_chk
$(BUILD)/tests/test_trainer_staging: private override LDFLAGS += -Wl,--wrap=renameat2,--wrap=rename,--wrap=fsync,--wrap=file_lock
$(BUILD)/tests/test_trainer_checkpoint_dir: private override LDFLAGS += -Wl,--wrap=renameat2
$(BUILD)/tests/test_trainer_origin_tfrecord: private override LDFLAGS += -Wl,--wrap=glob,--wrap=readdir
$(BUILD)/tests/test_trainer_file: private override LDFLAGS += -Wl,--wrap=fstat,--wrap=fsync,--wrap=close,--wrap=flock
$(BUILD)/tests/test_trainer_file_output: private override LDFLAGS += -Wl,--wrap=stat,--wrap=open,--wrap=fchown
$(BUILD)/tests/test_trainer_decode: private override LDFLAGS += -Wl,--wrap=spng_decode_image
$(BUILD)/tests/test_trainer_memory: private override LDFLAGS += -Wl,--wrap=fopen,--wrap=stat
$(BUILD)/tests/test_trainer_world: private override LDFLAGS += -Wl,--wrap=cgroup_cpus,--wrap=hvd_allgather,--wrap=hvd_host,--wrap=hvd_world,--wrap=sched_getaffinity,--wrap=dlopen,--wrap=dlsym,--wrap=hvd_init,--wrap=poll,--wrap=__poll_chk
$(BUILD)/tests/test_trainer_log: private override LDFLAGS += -Wl,--wrap=poll,--wrap=__poll_chk
$(BUILD)/tests/test_trainer_sequence: private override LDFLAGS += -Wl,--wrap=pthread_create
$(BUILD)/tests/test_trainer_recover: private override LDFLAGS += $(addprefix -Wl$(,)--wrap=,hvd_allgather hvd_broadcast hvd_lost hvd_error engine_made world_recover world_same train_open_loader train_set_schedule)

# The CPU engine and its reference with double for float: what the algorithm does apart from rounding.
FP64_SRC := $(filter-out %/baseline.c %/kernels_avx512.c %/kernels_avx2.c %/kernels_neon.c %/amx_processor.c %/amx_emulated.c %/amx_choice.c,$(wildcard trainer/error.c trainer/net/*.c trainer/engine/engine.c trainer/engine/layout.c \
            trainer/engine/reference/*.c trainer/engine/cpu/*.c))
$(BUILD)/fp64/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -I. -Itrainer -Iruntime -pthread -fopenmp -O3 -Wno-psabi $(if $(findstring clang,$(CC)),,-Wno-builtin-declaration-mismatch) -include tests/unit/fp64.h -c -o $@ $<
$(BUILD)/tests/test_fp64_%: $(BUILD)/fp64/tests/unit/test_fp64_%.o $(patsubst %.c,$(BUILD)/fp64/%.o,$(FP64_SRC))
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -lcmocka -fopenmp -pthread -lm
include trainer/engine/cuda/cuda.mk
.SECONDARY:

# chexnet with a fault in it, for live tests: tests/live/wrap_FUNCTION.c stands in front of FUNCTION.
WRAPS := $(if $(filter %/chexnet,$(TARGETS)),$(patsubst tests/live/%.c,$(BUILD)/tests/%,$(wildcard tests/live/wrap_*.c)))
$(BUILD)/tests/wrap_world_agree: private override LDFLAGS += -Wl,--wrap=hvd_mark
$(BUILD)/tests/wrap_train_finish: private override LDFLAGS += -Wl,--wrap=model_train
$(BUILD)/tests/wrap_rename: private override LDFLAGS += -Wl,--wrap=renameat2
$(BUILD)/tests/wrap_engine_forward: private override LDFLAGS += -Wl,--wrap=engine_done,--wrap=loader_open
$(BUILD)/tests/wrap_%: $(BUILD)/obj/tests/live/wrap_%.o $(call objects,trainer/chexnet.c $(TRAINER_SRC)) $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,--wrap=$* -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..' $(TRAINER_LIBS)

tests: all $(TEST_BINS) $(WRAPS) $(EXAMPLES)
	@# tests/run would run a program whose source is gone, or has another name, as it was
	@rm -f $(filter-out $(TEST_BINS),$(wildcard $(BUILD)/tests/test_*))

deps:
	contrib/deps.sh $(if $(INSTALL),--install,--list)

# The packages may not be there yet when make reads this file: install, then start make anew.
# A build of its own takes all cores, where the caller names no number of jobs.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))
check:
	contrib/deps.sh --install check
	+$(MAKE) --no-print-directory $(JOBS) $(if $(SAN),SAN=$(SAN)) STRICT=1 tests
	BUILD=$(BUILD) SAN=$(SAN) tests/run

demo:
	contrib/deps.sh --install demo
	+$(MAKE) --no-print-directory $(JOBS) all
	BUILD=$(BUILD) DATA="$(DATA)" contrib/demo.sh

SECONDS_EACH ?= 60
FUZZ        := $(BUILD)$(if $(filter-out thread,$(SAN)),,/san)
fuzz:
	+$(MAKE) --no-print-directory SAN=1 BUILD=$(FUZZ) $(FUZZ)/fuzz_spank $(FUZZ)/fuzz_runtime $(FUZZ)/tests/test_trainer_fuzz $(FUZZ)/tests/test_trainer_jpeg_streams
	$(FUZZ)/fuzz_spank $(SECONDS_EACH)
	$(FUZZ)/fuzz_runtime $(SECONDS_EACH)
	TEST_FUZZ_SECONDS=$(SECONDS_EACH) $(FUZZ)/tests/test_trainer_fuzz
	TEST_FUZZ_SECONDS=$(SECONDS_EACH) $(FUZZ)/tests/test_trainer_jpeg_streams
$(BUILD)/fuzz_spank: $(call objects,tests/fuzz/fuzz_spank.c $(SPANK_CORE))
	$(CC) $(ALL_LDFLAGS) -o $@ $^ -ldl

# Benchmarks in C, against the trainer's parts.
BENCHES := $(if $(filter %/chexnet,$(TARGETS)),$(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/cpu_*.c)))
$(BUILD)/bench/cpu_%: $(BUILD)/obj/tests/bench/cpu_%.o $(call objects,$(TRAINER_SRC) $(if $(HAVE_DNNL),$(BASELINE_SRC))) $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..' $(TRAINER_LIBS) $(if $(HAVE_DNNL),-ldnnl)

$(BUILD)/obj/tests/fuzz/fuzz_runtime.o: PART_CFLAGS = -pthread
$(BUILD)/fuzz_runtime: $(call objects,tests/fuzz/fuzz_runtime.c runtime/wire.c runtime/plan_file.c runtime/transport.c)
	$(CC) $(ALL_LDFLAGS) -o $@ $^

bench: all $(BENCHES)
	BUILD=$(BUILD) tests/bench/run

# ---- installation --------------------------------------------------------------------------------
# asked once: where no controller answers, that takes seconds
slurm_plugindir ?= $(eval slurm_plugindir := $(or $(shell scontrol show config 2>/dev/null | sed -n 's/^PluginDir *= *//p' | cut -d: -f1),$(firstword $(patsubst %/,%,$(dir $(wildcard $(addsuffix /slurm/task_affinity.so,$(addprefix $(SLURM)/,$(if $(SLURM),lib64 lib))) /usr/lib/*/slurm-wlm/task_affinity.so /usr/lib64/slurm/task_affinity.so /usr/lib/slurm/task_affinity.so)))),$(libdir)/slurm))$(slurm_plugindir)
# MODE,FILE,DIRECTORY: the new file takes the old one's place in one move, since what starts at that moment needs a whole one
place         = { to="$(DESTDIR)$(3)/$(notdir $(2))" && install -m $(1) $(2) "$$to.new" && mv -f "$$to.new" "$$to"; } || { rm -f "$$to.new"; exit 1; }
# a plugin that lies elsewhere needs its whole path in plugstack.conf
SLURMS_OWN    = $(wildcard $(slurm_plugindir)/select_*.so)
# the loader's cache, which only root may write: programs linked with -lhvd look there
LIBRARIES_CHANGED = [ -n "$(DESTDIR)" ] || PATH=$$PATH:/sbin:/usr/sbin ldconfig 2>/dev/null || true

# for all to read, whatever the caller's umask: one plugstack.conf.d/hvd.conf that users cannot read stops every srun
install: all
	umask 022 && $(MAKE) --no-print-directory install-files

install-files:
	install -d "$(DESTDIR)$(bindir)" "$(DESTDIR)$(libdir)" "$(DESTDIR)$(includedir)" "$(DESTDIR)$(slurm_plugindir)" \
	           "$(DESTDIR)$(mandir)/man1" "$(DESTDIR)$(mandir)/man3" "$(DESTDIR)$(mandir)/man8" "$(DESTDIR)$(prefix)/share/slurm-hvd" "$(DESTDIR)$(docdir)"
	for p in hvd-map hvd-bench hvd-trace chexnet; do if [ -e $(BUILD)/$$p ]; then $(call place,755,$(BUILD)/$$p,$(bindir)); fi; done
	if [ -e $(BUILD)/libhvd.so.0 ]; then $(call place,644,$(BUILD)/libhvd.so.0,$(libdir)) && ln -sf libhvd.so.0 "$(DESTDIR)$(libdir)/libhvd.so" && $(call place,644,runtime/hvd.h,$(includedir)) && \
	  install -d "$(DESTDIR)$(libdir)/pkgconfig" && sed 's|@VERSION@|$(VERSION)|; s|@includedir@|$(includedir)|; s|@libdir@|$(libdir)|' runtime/libhvd.pc.in >"$(DESTDIR)$(libdir)/pkgconfig/libhvd.pc"; fi
	if [ -e $(BUILD)/libchexnet_cuda.so ]; then $(call place,644,$(BUILD)/libchexnet_cuda.so,$(libdir)); fi
	if [ -e $(BUILD)/spank_hvd.so ]; then $(call place,644,$(BUILD)/spank_hvd.so,$(slurm_plugindir)); fi
	if [ -e $(BUILD)/chexnet ]; then $(BUILD)/chexnet --man-page >"$(DESTDIR)$(mandir)/man1/chexnet.1" && \
	  install -d "$(DESTDIR)$(prefix)/share/bash-completion/completions" && \
	  $(BUILD)/chexnet --completion >"$(DESTDIR)$(prefix)/share/bash-completion/completions/chexnet"; fi
	for m in spank/*.[138] runtime/*.[138] trainer/*.[138]; do if [ -e $$m ]; then install -m 644 $$m "$(DESTDIR)$(mandir)/man$${m##*.}/" || exit 1; fi; done
	install -m 644 LICENSE README.md "$(DESTDIR)$(docdir)"
	cp -r etc contrib/sbatch contrib/examples "$(DESTDIR)$(prefix)/share/slurm-hvd/" && chmod -R u=rwX,go=rX "$(DESTDIR)$(prefix)/share/slurm-hvd"
	sed -i '/ cd where/d; /make install/d; s|\./chexnet |$(bindir)/chexnet |' "$(DESTDIR)$(prefix)/share/slurm-hvd/sbatch/chexnet.sbatch"
	$(if $(SLURMS_OWN),,sed -i 's|^optional |&$(slurm_plugindir)/|' "$(DESTDIR)$(prefix)/share/slurm-hvd/etc/plugstack.conf.d/hvd.conf")
	@$(LIBRARIES_CHANGED)
	@[ ! -e $(BUILD)/spank_hvd.so ] || echo 'Next: copy $(prefix)/share/slurm-hvd/etc/plugstack.conf.d/hvd.conf to $(sysconfdir)/slurm/plugstack.conf.d/ (README.md, "For admins")'

uninstall:
	rm -f "$(DESTDIR)$(bindir)"/{hvd-map,hvd-bench,hvd-trace,chexnet} "$(DESTDIR)$(libdir)"/{libhvd.so{,.0},libchexnet_cuda.so} \
	      "$(DESTDIR)$(includedir)/hvd.h" "$(DESTDIR)$(libdir)/pkgconfig/libhvd.pc" "$(DESTDIR)$(slurm_plugindir)/spank_hvd.so"
	for m in spank/*.[138] runtime/*.[138] trainer/*.[138]; do rm -f "$(DESTDIR)$(mandir)/man$${m##*.}/$${m##*/}"; done
	rm -f "$(DESTDIR)$(mandir)/man1/chexnet.1" "$(DESTDIR)$(prefix)/share/bash-completion/completions/chexnet"
	rm -rf "$(DESTDIR)$(prefix)/share/slurm-hvd"
	rm -f "$(DESTDIR)$(docdir)"/{LICENSE,README.md}
	rmdir "$(DESTDIR)$(docdir)" 2>/dev/null || true
	@$(LIBRARIES_CHANGED)

clean:
	@case "$$(pwd -P)/" in "$$(realpath -m $(BUILD))"/*) echo "make clean: $(BUILD) holds the sources: nothing is removed" >&2; exit 1 ;; esac
	@# without its directory nothing could end it
	@for c in $(BUILD){,/*,/*/demo}/cluster; do [ ! -e $$c/.hvd-cluster ] || contrib/cluster/hvd-cluster --dir $$c down; done
	rm -rf $(BUILD)

-include $(shell find $(BUILD)/obj $(BUILD)/fp64 $(BUILD)/plugin -name '*.d' 2>/dev/null)
