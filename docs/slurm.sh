#!/bin/bash
# Label data on several machines of a Slurm cluster, however short its time limit is:
#
#     sbatch --nodes=2 slurm.sh DATA --out RUN [options of saas label]
#
# The job begins a run, or goes on with one that was interrupted; before the time limit it saves and
# queues itself again. DATA and RUN must be on a file system that all machines share: see scale.md.

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
    scancel --signal=TERM "$SLURM_JOB_ID"    # reaches torchrun, but not this script
}
trap at_limit USR1

# torchrun numbers the machines by their names; the first of them works to the end of the run.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | LC_ALL=C sort | head -n 1)
srun --wait=0 torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$PROCESSES" \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:$PORT" \
    --no-python saas label "$@" --resume &
run=$!
wait "$run"    # not in the foreground, where the shell would hear no signal
code=$?
if [ "$limit" ]; then
    wait "$run"    # until all have saved
    code=$?
    [ "$code" -eq 0 ] || scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
