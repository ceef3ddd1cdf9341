# SPDX-License-Identifier: Apache-2.0
# Inside a private cluster whose nodes have 4 GPUs: gives command lines to srun, types what the plugin then says to type, and sees whether that helps.
#
#     advice.py    lines of stdin: [JOB |] [VARIABLE=VALUE…] OPTIONS, JOB being options of salloc
import os
import re
import shlex
import subprocess
import sys

PROGRAM = ["bash", "-c", 'echo "task $(hostname) ${CUDA_VISIBLE_DEVICES-unset}"']


def start(job, variables, words):
    command = (["salloc", "-Q", *job] if job else []) + ["env", *variables, "srun", "-Q", *words, *PROGRAM]
    done = subprocess.run(["timeout", "60", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def advice(output):
    """(whose words, words, words to leave out, GPUs that all nodes have to have) of every "type A, or B, else submit the job with C"."""
    for line in sorted(set(re.findall(r"^hvd: .*", output, re.M))):
        found = re.search(r": (?:type|submit the job with|(?:add|write) #SBATCH) -.*", line)
        if not found:
            continue
        text, whose = found.group(0)[2:], "step"
        of_all = re.search(r", if all nodes have (\d+) GPUs?$", text)
        text = text[: of_all.start()] if of_all else text
        for piece in re.split(r", else |, or | or (?=-)|, (?=-)", text):
            said = re.match(r"(type|submit the job with|(?:add|write) #SBATCH) (.*)", piece)
            if said:
                whose, piece = "step" if said.group(1) == "type" else "job", said.group(2)
            gpus = re.search(r" if all nodes have (\d+)", piece) or of_all
            piece = re.sub(r" if all nodes have .*| for one node", "", piece)
            piece, *out = re.split(r" and no | in place of ", piece)
            yield whose, shlex.split(piece), " ".join(out).split(), gpus and int(gpus.group(1))


def without(words, names):
    return [w for w in words if w.split("=")[0] not in names]


wrong = helped = 0
for line in sys.stdin:
    job, _, rest = line.strip().rpartition(" | ")
    job, words = shlex.split(job), shlex.split(rest)
    variables = [w for w in words if w[0] != "-" and "=" in w]
    words = [w for w in words if w not in variables]
    status, output = start(job, variables, words)
    cures = list(advice(output))
    if status and not cures:
        wrong += 1
        print(f"{line.strip()}: no advice\n{output}")
    for whose, more, less, gpus in cures:
        changed = (job + more if whose == "job" else job, variables, words + more if whose == "step" else words)
        changed = (without(changed[0], less), changed[1], without(changed[2], less))
        status, output = start(*changed)
        # what holds for equal nodes is not for those of one job that are not
        others = [int(n) for n in re.findall(r"(?:but|all nodes have) (\d+) GPU", output)]
        if gpus and status and any(n not in (gpus, 2 * gpus) for n in others):
            continue
        idle = "no task uses" in output and "--hvd-bind=share" not in more
        if status or idle:
            wrong += 1
            print(f"{line.strip()}: {whose}: {shlex.join(more)} without {less}: status {status}\n{output}")
        helped += 1
print(f"{helped} cures typed, {wrong} wrong")
sys.exit(wrong > 0)
