# SPDX-License-Identifier: Apache-2.0
# For tests of what is for a GPU, without one.

setup() {
	BUILD=${BUILD:-build}
	scratch=$BUILD/tests/tmp/cuda.$$
	mkdir -p "$scratch"
	TMPDIR=$(realpath "$scratch") # of programs that are killed here, before they tidy up
	export TMPDIR PYTHONDONTWRITEBYTECODE=1 # beside the device script
}

teardown() {
	rm -rf "$scratch"
}

# Python from standard input, in which tests/gpu/run is the module `run`.
beside_device_script() { # ARGUMENT…
	{
		cat <<-'END'
			import importlib.machinery, importlib.util
			loader = importlib.machinery.SourceFileLoader("run", "tests/gpu/run")
			run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
			loader.exec_module(run)
		END
		cat
	} | python3 - "$@"
}

needs_python() {
	python3 -c 'import json, subprocess' 2>/dev/null || skip "no python3, in which the device script is written (it comes with PyTorch, its rival)"
}
