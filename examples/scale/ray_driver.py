"""Encodes a corpus in shards on a Ray cluster.

    python ray_driver.py --shards 100 --out s3://bucket/shards -- chats.jsonl.zst --model MODEL

What follows `--` is given to `turnwise encode`. A task whose worker or machine is lost is started again by Ray; a shard that
was done by then is found to be done. Run it again to do what is missing.
"""

import argparse
import json
import subprocess
import sys

import ray


# Ray counts lost workers against the retries, and errors of the program not: those would come again.
@ray.remote(num_cpus=1, max_retries=10)
def encode_shard(program, shard, shards, out, arguments):
    command = [program, "encode", "--shard", f"{shard}/{shards}", "--out", out, "--format", "json", "--no-progress"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"shard {shard}/{shards}: {done.stderr.strip()}")
    return json.loads(done.stdout)[0]


def encode(program, shards, out, arguments):
    """Encodes all shards, and gives what turnwise says of each, as they come to their end."""
    waiting = [encode_shard.remote(program, shard, shards, out, arguments) for shard in range(shards)]
    while waiting:
        done, waiting = ray.wait(waiting)
        yield from ray.get(done)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, required=True, help="into how many parts the corpus is divided")
    parser.add_argument("--out", required=True, help="a folder that all machines share, or s3://, gs://, az://")
    parser.add_argument("--program", default="turnwise", help="turnwise, as the machines find it")
    parser.add_argument("--address", help="the cluster; the one of the environment, or this machine, if not given")
    parser.add_argument("arguments", nargs="*", help="for `turnwise encode`: inputs, --model and the like")
    args = parser.parse_args()
    ray.init(address=args.address, log_to_driver=False)
    for shard in encode(args.program, args.shards, args.out, args.arguments):
        print(shard["shard"], "known" if shard["known"] else "made", shard["file"], flush=True)
    print(f"all {args.shards} are there; turnwise encode --assemble {args.out} -i INDEX puts them together", file=sys.stderr)


if __name__ == "__main__":
    main()
