#!/usr/bin/env bash
#SBATCH --job-name=turnwise-encode
#SBATCH --array=0-99%20
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --requeue
# A hundred shards by an array job, twenty at once. What was lost is named by `encode --assemble`; those alone are made
# again by `sbatch --array=3,17 slurm.sh`. To put all together behind it:
#   sbatch --dependency=afterok:JOB --wrap 'turnwise encode --assemble "$PLACE" -i chats'
set -euo pipefail

# How many parts there are in all: more than the array's own count when some are made again.
SHARDS=${SHARDS:-100}
INPUT=${INPUT:-chats.jsonl.zst}
PLACE=${PLACE:-shards}
MODEL=${MODEL:-sentence-transformers/all-MiniLM-L6-v2}

exec turnwise encode --shard "$SLURM_ARRAY_TASK_ID/$SHARDS" --threads "${SLURM_CPUS_PER_TASK:-0}" \
  "$INPUT" --out "$PLACE" --model "$MODEL"
