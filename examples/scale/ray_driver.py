"""Encodes a corpus in shards on a Ray cluster.

    python ray_driver.py --shards 100 --out s3://bucket/shards -- chats.jsonl.zst --model MODEL

The arguments after `--` are those of `turnwise encode`. Ray starts a task again if its worker or machine is lost. Complete
shards are skipped, so run the script again to create the missing shards.
"""

import argparse
import json
import subprocess
import sys

import ray


# Ray retries after a lost worker, but not after an error of the program, which would occur again.
@ray.remote(num_cpus=1, max_retries=10)
def encode_shard(program, shard, shards, out, arguments):
    command = [program, "encode", "--shard", f"{shard}/{shards}", "--out", out, "--format", "json", "--no-progress"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"shard {shard}/{shards}: {done.stderr.strip()}")
    return json.loads(done.stdout)[0]


def encode(program, shards, out, arguments):
    """Encodes all shards, and yields the output of turnwise for each shard when it is complete."""
    waiting = [encode_shard.remote(program, shard, shards, out, arguments) for shard in range(shards)]
    while waiting:
        done, waiting = ray.wait(waiting)
        yield from ray.get(done)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, required=True, help="number of shards")
    parser.add_argument("--out", required=True, help="folder that all machines share, or s3://, gs://, az://")
    parser.add_argument("--program", default="turnwise", help="path of turnwise on the workers")
    parser.add_argument("--address", help="address of the cluster [default: from the environment, else this machine]")
    parser.add_argument("arguments", nargs="*", help="arguments of `turnwise encode`: inputs, --model, …")
    args = parser.parse_args()
    ray.init(address=args.address, log_to_driver=False)
    for shard in encode(args.program, args.shards, args.out, args.arguments):
        print(shard["shard"], "known" if shard["known"] else "made", shard["file"], flush=True)
    print(f"all {args.shards} are there; turnwise encode --assemble {args.out} -i INDEX puts them together", file=sys.stderr)


if __name__ == "__main__":
    main()
