#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the machine is and allows: one JSON object. Needs no GPU, tells if there is one."""
import json
import os
import platform
import subprocess
import tempfile


def output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "no: %s" % error
    text = (done.stdout.strip() or done.stderr.strip())[-600:]
    return text if done.returncode == 0 else "no (%d): %s" % (done.returncode, text)


def can_mknod():
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.mknod(folder + "/null", 0o020666, os.makedev(1, 3))
            with open(folder + "/null", "wb") as node:
                node.write(b"x")
        except OSError as error:
            return "no: %s" % error
    return "yes"


def main():
    smi = "name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu,pci.bus_id"
    answer = {
        "kernel": platform.release(), "machine": platform.machine(), "cpus": os.cpu_count(), "uid": os.getuid(),
        "glibc": platform.libc_ver()[1], "python": platform.python_version(),
        "gpu": output("nvidia-smi", "--query-gpu=" + smi, "--format=csv,noheader"),
        "topology": output("nvidia-smi", "topo", "-m"),
        "nvcc": output("nvcc", "--version").split("\n")[-1],
        "make": output("make", "--version").split("\n")[0], "gcc": output("gcc", "--version").split("\n")[0],
        "namespaces": {kind: output("unshare", *flags, "true") or "yes" for kind, flags in
                       (("user", ["-U"]), ("mount", ["-m"]), ("net", ["-n"]), ("uts", ["-u"]), ("pid", ["-p", "-f"]),
                        ("root in a user namespace", ["-U", "-r", "-m", "-n", "-u", "-p", "-f"]))},
        "mknod": can_mknod(),
        "devices": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
        "slurm": output("slurmd", "-V"), "ip": output("ip", "-V"), "gdb": output("cuda-gdb", "--version").split("\n")[0],
        "ncu": output("ncu", "--version").split("\n")[-1], "sanitizer": output("compute-sanitizer", "--version").split("\n")[-1],
    }
    answer["note"] = answer["gpu"]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
