#!/usr/bin/env bash
#SBATCH --job-name=turnwise-encode
#SBATCH --array=0-99%20
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --requeue
# Encodes a hundred shards as an array job, twenty at once. `encode --assemble` names missing shards; create only these with
# `sbatch --array=3,17 slurm.sh`. To assemble the shards after the job:
#   sbatch --dependency=afterok:JOB --wrap 'turnwise encode --assemble "$PLACE" -i chats'
set -euo pipefail

# Total number of shards, also if the array runs only some of them.
SHARDS=${SHARDS:-100}
INPUT=${INPUT:-chats.jsonl.zst}
PLACE=${PLACE:-shards}
MODEL=${MODEL:-sentence-transformers/all-MiniLM-L6-v2}

exec turnwise encode --shard "$SLURM_ARRAY_TASK_ID/$SHARDS" --threads "${SLURM_CPUS_PER_TASK:-0}" \
  "$INPUT" --out "$PLACE" --model "$MODEL"
