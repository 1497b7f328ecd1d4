#!/bin/bash
# Label data on several machines of a Slurm cluster, as many times as the time limit makes it:
#
#     sbatch --nodes 2 slurm.sh DATA --out RUN [options of saas label]
#
# The same command begins a run, goes on with one, and does nothing for one that is finished. DATA
# and RUN must be on a file system that all machines share. See scale.md.

#SBATCH --job-name=saas
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1    # torchrun, which starts PROCESSES others
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=8      # one for each of them; without GPUs remove this line
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120    # this script is told two minutes before the limit
#SBATCH --requeue
#SBATCH --open-mode=append     # one log for all parts of a run

PROCESSES=${PROCESSES:-8}      # on each machine
PORT=${PORT:-$((20000 + SLURM_JOB_ID % 10000))}

limit=
at_limit() {
    limit=near
    scancel --signal=TERM "$SLURM_JOB_ID"    # to the step below, not to this script
}
trap at_limit USR1

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$PROCESSES" \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:$PORT" \
    --no-python saas label "$@" --resume &
wait $!    # in the background, since a shell handles signals between commands only
code=$?
if [ "$limit" ]; then
    wait    # until all have saved
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
