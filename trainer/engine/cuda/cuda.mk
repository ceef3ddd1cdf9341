# SPDX-License-Identifier: Apache-2.0
# The CUDA engine and its tests. Included by the Makefile; needs CUDA_HOME and NVCC from it.
#
#   make gpu      programs for a machine with a GPU, in build/gpu (tests/gpu/run uses them there)
#
# CUDA_ARCHS: machine code for these; the last compute_80 PTX serves newer GPUs.

CUDA_ARCHS  ?= 75 80 90a
NVCC_FLAGS   = --threads 2 -diag-suppress 177 -std=c++17 -O2 -lineinfo -Xfatbin -compress-all --expt-relaxed-constexpr --extended-lambda -Itrainer -Itrainer/engine/cuda -Xcompiler -fPIC,-Wall \
               $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_80,code=compute_80
SHIM_FLAGS   = -std=c++17 -g -O2 -Wall -Wextra $(if $(STRICT),-Werror) -U_FORTIFY_SOURCE -Itrainer -Itrainer/engine/cuda -Itests/cuda -MMD -MP $(MADE) $(SANITIZE)
CXX         := $(if $(filter default,$(origin CXX)),g++,$(CXX))

KERNEL_CASES := $(wildcard tests/gpu/case*.cpp)

# Kernel bodies on the CPU: always, with any C++17 compiler.
$(BUILD)/obj/shim/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(SHIM_FLAGS) -c -o $@ $<
$(BUILD)/tests/test_cuda_kernels: $(patsubst %.cpp,$(BUILD)/obj/shim/%.o,$(KERNEL_CASES) tests/cuda/shim.cpp)
	@mkdir -p $(@D)
	$(CXX) $(SANITIZE) -o $@ $^
# The engine on the same shim, beside the reference engine.
CUDA_SHIM_C := $(wildcard trainer/error.c trainer/engine/cuda/devices.c trainer/net/*.c trainer/engine/engine.c trainer/engine/cuda_load.c trainer/engine/layout.c trainer/engine/reference/*.c)
NETWORK_TESTS := tests/cuda/test_network.cpp $(wildcard tests/cuda/network_*.cpp)
$(BUILD)/tests/test_cuda_network: $(patsubst %.cpp,$(BUILD)/obj/shim/%.o,$(NETWORK_TESTS) tests/cuda/shim.cpp trainer/engine/cuda/engine_cuda.cpp \
                                  trainer/engine/cuda/network.cpp) $(call objects,$(CUDA_SHIM_C))
	@mkdir -p $(@D)
	$(CXX) $(SANITIZE) -fopenmp -o $@ $^ -lm -ldl
TEST_BINS += $(BUILD)/tests/test_cuda_kernels $(BUILD)/tests/test_cuda_network

# The whole program with it, and a driver that says there is a GPU: what the trainer makes of the engine.
$(BUILD)/cuda/chexnet: $(patsubst %.cpp,$(BUILD)/obj/shim/%.o,tests/cuda/shim.cpp tests/cuda/engine_shim.cpp trainer/engine/cuda/engine_cuda.cpp trainer/engine/cuda/network.cpp) \
                       $(call objects,trainer/chexnet.c trainer/engine/cuda/devices.c $(filter-out %/cuda_load.c,$(TRAINER_SRC))) $(BUILD)/libhvd.so
	@mkdir -p $(@D)
	$(CXX) $(SANITIZE) -o $@ $(filter %.o,$^) -L$(BUILD) -lhvd -Wl,-rpath,'$$ORIGIN/..' $(TRAINER_LIBS)
$(BUILD)/cuda/libcuda.so.1: $(BUILD)/obj/tests/cuda/driver.o
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^
ifneq ($(filter %/chexnet,$(TARGETS)),)
tests: $(BUILD)/cuda/chexnet $(BUILD)/cuda/libcuda.so.1
endif

# The same for a GPU.
$(BUILD)/obj/nvcc/%.o: %.cpp
	@mkdir -p $(@D)
	$(NVCC) -x cu $(NVCC_FLAGS) -MD -MP -MF $(@:.o=.d) $(MADE) -Xptxas -v -c -o $@ $< 2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas) >&2; exit 1; }
$(BUILD)/gpu/gpu-kernels: $(patsubst %.cpp,$(BUILD)/obj/nvcc/%.o,$(KERNEL_CASES))
	@mkdir -p $(@D)
	$(NVCC) -o $@ $^
$(BUILD)/gpu/gpu-probe: $(BUILD)/obj/nvcc/tests/gpu/probe.o
	@mkdir -p $(@D)
	$(NVCC) -o $@ $^ -ldl
# Carried to another machine, for rehearsals there: without what only a debugger reads.
OBJCOPY     ?= objcopy
carried      = $(if $(SAN),cp,$(OBJCOPY) --strip-debug) $< $@
$(BUILD)/gpu/gpu-kernels-cpu: $(BUILD)/tests/test_cuda_kernels
	@mkdir -p $(@D)
	$(carried)

# libhvd's NCCL back end and the engine in worlds of processes on one GPU; without one on the shim, with a stand-in for NCCL.
WORLD_C     := trainer/error.c trainer/engine/engine.c trainer/engine/layout.c $(wildcard trainer/net/*.c)
# The whole of libhvd in one object, whose inner names stay inside, as in libhvd.so.
localized    = $(LD) -r $(1) -o $@ $(filter %.o,$^) && $(OBJCOPY) --localize-hidden $@
$(BUILD)/obj/gpu/runtime.o: $(call objects,tests/gpu/meeting.c $(RUNTIME_SRC))
	@mkdir -p $(@D)
	$(call localized)
$(BUILD)/obj/gpu/runtime_stand_in.o: $(call objects,tests/gpu/meeting.c tests/gpu/nccl_stand_in_tables.c $(RUNTIME_SRC))
	@mkdir -p $(@D)
	$(call localized,--wrap=nccl_bind --wrap=driver_bind)
$(BUILD)/obj/tests/gpu/meeting.o $(BUILD)/obj/tests/gpu/nccl_stand_in_tables.o: PART_CFLAGS = -I. -Iruntime -DHAVE_NCCL=1 $(if $(CUDA_HOME),-isystem $(CUDA_HOME)/include) -pthread
$(BUILD)/obj/shim/tests/gpu/%.o: SHIM_FLAGS += -I. -Iruntime $(if $(CUDA_HOME),-isystem $(CUDA_HOME)/include)
$(BUILD)/obj/nvcc/tests/gpu/world.o: NVCC_FLAGS += -Iruntime
$(BUILD)/gpu/gpu-world: $(BUILD)/obj/nvcc/tests/gpu/world.o $(BUILD)/obj/gpu/runtime.o $(call objects,$(WORLD_C) trainer/engine/cuda_load.c)
	@mkdir -p $(@D)
	$(NVCC) -ccbin $(CXX) -o $@ $^ -Xlinker -rpath,'$$ORIGIN/..' -Xcompiler -fopenmp -lpthread -ldl -lrt
$(BUILD)/gpu/gpu-world-cpu: $(patsubst %.cpp,$(BUILD)/obj/shim/%.o,tests/gpu/world.cpp tests/gpu/nccl_stand_in.cpp tests/cuda/shim.cpp tests/cuda/engine_shim.cpp trainer/engine/cuda/engine_cuda.cpp \
                            trainer/engine/cuda/network.cpp) $(BUILD)/obj/gpu/runtime_stand_in.o $(call objects,$(WORLD_C) trainer/engine/cuda/devices.c)
	@mkdir -p $(@D)
	$(CXX) $(SANITIZE) $(if $(SAN),,-Wl,--strip-debug) -fopenmp -o $@ $^ -pthread -lm -ldl -lrt
GPU_WORLD   := $(if $(HAVE_NCCL),$(if $(HAVE_PMIX),gpu-world))

# The engine as it is on a GPU, beside the reference engine: its tests without their looks behind the waist.
$(BUILD)/obj/gpu/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(SHIM_FLAGS) -DON_DEVICE -c -o $@ $<
$(BUILD)/gpu/gpu-engine: $(patsubst %.cpp,$(BUILD)/obj/gpu/%.o,$(NETWORK_TESTS)) $(call objects,$(filter-out trainer/engine/cuda/%,$(CUDA_SHIM_C)))
	@mkdir -p $(@D)
	$(CXX) -fopenmp -o $@ $^ -Wl,-rpath,'$$ORIGIN/..' -lm -ldl
$(BUILD)/gpu/gpu-engine-cpu: $(BUILD)/tests/test_cuda_network
	@mkdir -p $(@D)
	$(carried)

# What it computes of whole networks, for PyTorch to judge (parity.py).
$(BUILD)/obj/tests/gpu/parity.o: PART_CFLAGS = -I. -Itrainer
$(BUILD)/gpu/gpu-parity: $(call objects,tests/gpu/parity.c $(filter-out trainer/engine/cuda/%,$(CUDA_SHIM_C)))
	@mkdir -p $(@D)
	$(CC) -fopenmp -o $@ $^ -Wl,-rpath,'$$ORIGIN/..' -lm -ldl
$(BUILD)/gpu/gpu-parity-cpu: $(patsubst %.cpp,$(BUILD)/obj/shim/%.o,tests/cuda/shim.cpp tests/cuda/engine_shim.cpp trainer/engine/cuda/engine_cuda.cpp trainer/engine/cuda/network.cpp) \
                             $(call objects,tests/gpu/parity.c $(filter-out %/cuda_load.c,$(CUDA_SHIM_C)))
	@mkdir -p $(@D)
	$(CXX) $(SANITIZE) $(if $(SAN),,-Wl,--strip-debug) -fopenmp -o $@ $^ -lm -ldl

# CUDA's driver loads it into a program whose kernels step_profile.py is to time; a stand-in for CUPTI, which it opens.
HAVE_CUPTI  := $(if $(NVCC),$(call has_header,cupti.h,-I$(CUDA_HOME)/include))
$(BUILD)/gpu/libtimeline.so: tests/gpu/timeline.cpp
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -Wall -Wextra $(if $(STRICT),-Werror) -fPIC -shared -fvisibility=hidden -isystem $(CUDA_HOME)/include -o $@ $< -ldl
$(BUILD)/obj/tests/gpu/cupti_stand_in.o: PART_CFLAGS = -isystem $(CUDA_HOME)/include
$(BUILD)/cuda/cupti/libcupti.so.13: $(BUILD)/obj/tests/gpu/cupti_stand_in.o
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^
TIMELINE    := $(if $(HAVE_CUPTI),$(BUILD)/gpu/libtimeline.so)

# cuDNN's headers are needed, the library is opened at run time.
HAVE_CUDNN  := $(if $(NVCC),$(call has_header,cudnn_graph.h,-I$(CUDA_HOME)/include))
$(BUILD)/obj/trainer/engine/cuda/%.o: PART_CFLAGS = -Itrainer -isystem $(CUDA_HOME)/include -fvisibility=hidden
$(BUILD)/obj/tests/gpu/%.o: PART_CFLAGS = -Itrainer
CUDA_C      := trainer/engine/cuda/cudnn.c trainer/engine/cuda/devices.c trainer/engine/cuda/library.c
$(BUILD)/obj/tests/gpu/cudnn_time.o: PART_CFLAGS = -Itrainer -isystem $(CUDA_HOME)/include
$(BUILD)/gpu/cudnn-plans: $(call objects,tests/gpu/cudnn_plans.c tests/gpu/cudnn_time.c $(CUDA_C) trainer/error.c)
	@mkdir -p $(@D)
	$(NVCC) -o $@ $^ -ldl
ifneq ($(NVCC),)
ifneq ($(HAVE_CUPTI),y)
LEFT_OUT += "profiles of a GPU's steps: no cupti.h in CUDA_HOME"
endif
ifneq ($(HAVE_CUDNN),y)
LEFT_OUT += "CUDA engine's cuDNN convolutions: no cudnn_graph.h in CUDA_HOME (cuDNN 9)"
endif
endif

# What nvcc made, carried out by a machine in software: the same objects with that machine linked instead of CUDA's runtime.
HAVE_ZSTD   := $(if $(NVCC),$(call has_header,zstd.h))
PTX_MACHINE := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(filter-out %/faults.cpp %/cudnn.cpp,$(wildcard tests/cuda/ptx/*.cpp)))
$(BUILD)/obj/tests/cuda/ptx/%.o: tests/cuda/ptx/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(SHIM_FLAGS) -O3 -fPIC -isystem $(CUDA_HOME)/include -c -o $@ $<
# The same for wgmma, which only sm_90a has.
$(BUILD)/obj/ptx90a/%.o: %.cpp
	@mkdir -p $(@D)
	$(NVCC) -x cu $(filter-out -gencode arch=compute_%,$(NVCC_FLAGS)) -gencode arch=compute_90a,code=compute_90a -DWGMMA_ONLY -MD -MP -MF $(@:.o=.d) $(MADE) -c -o $@ $<
$(BUILD)/tests/test_cuda_ptx_wgmma: $(patsubst %.cpp,$(BUILD)/obj/ptx90a/%.o,$(KERNEL_CASES)) $(PTX_MACHINE)
	@mkdir -p $(@D)
	$(CXX) -o $@ $^ -lzstd
$(BUILD)/tests/test_cuda_ptx_faults: $(BUILD)/obj/ptx90a/tests/cuda/ptx/faults.o $(PTX_MACHINE)
	@mkdir -p $(@D)
	$(CXX) -o $@ $^ -lzstd
$(BUILD)/tests/test_cuda_ptx_kernels: $(patsubst %.cpp,$(BUILD)/obj/nvcc/%.o,$(KERNEL_CASES)) $(PTX_MACHINE)
	@mkdir -p $(@D)
	$(CXX) -o $@ $^ -lzstd
$(BUILD)/tests/test_cuda_ptx_network: $(patsubst %.cpp,$(BUILD)/obj/gpu/%.o,$(NETWORK_TESTS)) $(BUILD)/obj/shim/tests/cuda/engine_shim.o $(patsubst %.cpp,$(BUILD)/obj/nvcc/%.o,trainer/engine/cuda/engine_cuda.cpp trainer/engine/cuda/network.cpp) \
                                      $(BUILD)/obj/tests/cuda/ptx/cudnn.o $(PTX_MACHINE) $(call objects,$(filter-out %/cuda_load.c,$(CUDA_SHIM_C)))
	@mkdir -p $(@D)
	$(CXX) -fopenmp -o $@ $^ -lzstd -lm -ldl
# The same for the whole program: chexnet takes these instead of the real one where the loader's path says so.
$(BUILD)/cuda/ptx/libchexnet_cuda.so: $(patsubst %.cpp,$(BUILD)/obj/nvcc/%.o,trainer/engine/cuda/engine_cuda.cpp trainer/engine/cuda/network.cpp)
$(BUILD)/cuda/ptx90a/libchexnet_cuda.so: $(patsubst %.cpp,$(BUILD)/obj/ptx90a/%.o,trainer/engine/cuda/engine_cuda.cpp trainer/engine/cuda/network.cpp)
$(BUILD)/cuda/ptx/libchexnet_cuda.so $(BUILD)/cuda/ptx90a/libchexnet_cuda.so: $(BUILD)/obj/tests/cuda/ptx/cudnn.o $(PTX_MACHINE) $(call objects,trainer/engine/cuda/devices.c trainer/error.c trainer/engine/layout.c)
	@mkdir -p $(@D)
	$(CXX) -shared -Wl,-Bsymbolic,-z,defs -o $@ $^ -lzstd
ifeq ($(SAN)$(HAVE_ZSTD)$(HAVE_CUDNN),yy)
TEST_BINS += $(addprefix $(BUILD)/tests/test_cuda_ptx_,faults kernels network wgmma)
tests: $(BUILD)/cuda/ptx/libchexnet_cuda.so $(BUILD)/cuda/ptx90a/libchexnet_cuda.so
else ifneq ($(NVCC),)
LEFT_OUT += "tests of nvcc's code: no sanitizers there, and they need zstd.h (Debian: libzstd-dev) and cuDNN's headers"
endif

# The engine: own kernels and cuDNN, with the few C files of the waist that it calls inside.
CUDA_ENGINE_OBJ := $(patsubst %.cpp,$(BUILD)/obj/nvcc/%.o,trainer/engine/cuda/engine_cuda.cpp trainer/engine/cuda/network.cpp) \
                   $(call objects,$(CUDA_C) trainer/error.c trainer/engine/layout.c)
$(BUILD)/obj/nvcc/trainer/engine/cuda/%.o $(BUILD)/obj/ptx90a/trainer/engine/cuda/%.o: NVCC_FLAGS += $(if $(HAVE_CUDNN),-DHAVE_CUDNN=1) -Xcompiler -fvisibility=hidden
$(BUILD)/libchexnet_cuda.so: $(CUDA_ENGINE_OBJ) trainer/engine/cuda/export.lds
	$(NVCC) -shared -Xlinker --version-script=trainer/engine/cuda/export.lds,-z,defs -o $@ $(filter %.o,$^) -ldl
# A shared object for a driver cannot be linked with sanitizers; they run on the same code through the shim.
ifeq ($(HAVE_CUDNN)$(SAN),y)
all: $(BUILD)/libchexnet_cuda.so
endif

.PHONY: gpu
ifneq ($(SAN),)
tests: $(BUILD)/gpu/gpu-kernels-cpu $(BUILD)/gpu/gpu-engine-cpu $(BUILD)/gpu/gpu-parity-cpu $(GPU_WORLD:%=$(BUILD)/gpu/%-cpu)
LEFT_OUT += "CUDA engine: not built with sanitizers"
else ifneq ($(NVCC),)
tests: gpu $(if $(HAVE_CUPTI),$(BUILD)/cuda/cupti/libcupti.so.13)
gpu: $(if $(HAVE_CUDNN),$(BUILD)/gpu/cudnn-plans) $(TIMELINE) $(BUILD)/gpu/gpu-kernels $(BUILD)/gpu/gpu-probe $(BUILD)/gpu/gpu-kernels-cpu $(BUILD)/gpu/gpu-engine $(BUILD)/gpu/gpu-engine-cpu $(BUILD)/gpu/gpu-parity $(BUILD)/gpu/gpu-parity-cpu $(GPU_WORLD:%=$(BUILD)/gpu/%) $(GPU_WORLD:%=$(BUILD)/gpu/%-cpu)
else
tests: $(BUILD)/gpu/gpu-kernels-cpu $(BUILD)/gpu/gpu-engine-cpu $(BUILD)/gpu/gpu-parity-cpu
LEFT_OUT += "CUDA engine: no nvcc (CUDA 13 toolkit; CUDA_HOME says where)"
gpu:
	@echo "no nvcc: set CUDA_HOME to a CUDA 13 toolkit" >&2; exit 1
endif
