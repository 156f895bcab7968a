"""Runs the Ray driver of the examples on two cores of this machine, and kills a worker while it encodes."""

import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "scale"))

import ray
import ray_driver


def encoding_workers():
    """The processes of Ray that this one started and that encode a shard now."""
    lines = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout.splitlines()[1:]
    processes = {int(line.split()[0]): (int(line.split()[1]), line.split(None, 2)[2]) for line in lines}

    def is_ours(pid):
        while pid in processes and pid != os.getpid():
            pid = processes[pid][0]
        return pid == os.getpid()

    return [pid for pid, (_, args) in processes.items() if args.startswith("ray::encode_shard") and is_ours(pid)]


def kill_one():
    for _ in range(600):
        for pid in encoding_workers():
            os.kill(pid, signal.SIGKILL)
            return pid
        time.sleep(0.05)
    sys.exit("no worker was found")


program, shards, out, *arguments = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
done, killed = [], []
for shard in ray_driver.encode(program, int(shards), out, arguments):
    done.append(shard["shard"])
    if len(killed) < 2:
        killed.append(kill_one())
assert sorted(done) == sorted(f"{n}/{shards}" for n in range(int(shards))), done
ray.shutdown()
print(f"{len(killed)} workers killed, {len(done)} shards: done")
