#!/bin/bash
# Starts a Slurm cluster of this one machine (munged, slurmctld, slurmd; no systemd), submits
# meta_train.sbatch and checks that the runs finish: under mpiexec, under srun, and with a rank that
# is killed on the way. Then an array of workers.sbatch works for a learner, makes way for an urgent
# job, and comes back. Run as root, with slurm-wlm and munge installed:
#   check_slurm.sh PATH_TO_LOPT
set -euo pipefail

lopt=$(realpath "${1:?usage: check_slurm.sh PATH_TO_LOPT}")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/wait_for.sh"
work=$(mktemp -d /tmp/lopt-slurm-XXXXXX)
host=$(hostname -s)
export SLURM_CONF=$work/slurm.conf
daemons=()

stop() {
  scancel --user root 2>/dev/null || true
  for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do
    kill "${daemons[i]}" 2>/dev/null || true
    wait "${daemons[i]}" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap stop EXIT

mkdir "$work/state" "$work/spool"
dd if=/dev/urandom of="$work/munge.key" bs=1024 count=1 status=none
chmod 0400 "$work/munge.key"
chmod 0755 "$work"
cat >"$SLURM_CONF" <<CONF
ClusterName=lopt
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket,cred_expire=5
CredType=cred/munge
MpiDefault=pmi2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldPort=16817
SlurmdPort=16818
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4 PriorityTier=2 PreemptMode=OFF
PartitionName=spare Nodes=$host MaxTime=INFINITE State=UP PriorityTier=1
CONF

munged --foreground --force --socket="$work/munge.socket" --key-file="$work/munge.key" \
  --pid-file="$work/munge.pid" --log-file="$work/munged.log" --seed-file="$work/munge.seed" \
  >"$work/munged.out" 2>&1 &
daemons+=($!)
wait_for test -S "$work/munge.socket"
slurmctld -D >"$work/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D >"$work/slurmd.log" 2>&1 &
daemons+=($!)
node_is_idle() { [[ $(sinfo --noheader --format=%T) == *idle* ]]; }
wait_for node_is_idle
echo "Slurm $(sinfo --version | cut -d' ' -f2) runs on $host"

# name, what starts the ranks, updates
submit() {
  LOPT=$lopt LOPT_MPIEXEC=$2 sbatch --parsable --ntasks=2 --chdir="$work" \
    "$here/meta_train.sbatch" "$work/config.json" "$work/$1" --steps "$3"
}
has_checkpoint() { compgen -G "$work/$1/checkpoints/step-*[1-9]*" >/dev/null; }  # after some updates
has_left_queue() { [ -z "$(squeue --noheader --jobs "$1" 2>/dev/null)" ]; }
check_finished() {
  wait_for has_left_queue "$2"
  if ! grep -q '"status": "finished"' "$work/$1/manifest.json"; then
    echo "$1: the run has not finished" >&2
    cat "$work/lopt-$2.log" >&2
    exit 1
  fi
  echo "$1: finished"
}

cat >"$work/config.json" <<'CONFIG'
{"learned_optimizer": {"type": "MLPLOpt"},
 "theta_opt": {"type": "Adam", "learning_rate": 1e-3},
 "estimators": [
   {"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 10}, "num_tasks": 4,
    "trunc_length": 50, "std": 0.01,
    "lengths": {"type": "LogUniformLengthSchedule", "min_length": 100, "max_length": 300},
    "random_initial_iteration_offset": 300}],
 "workers": 2, "checkpoint_steps": 100}
CONFIG

job=$(submit under-mpiexec mpiexec 200)
check_finished under-mpiexec "$job"
job=$(submit under-srun "srun --mpi=pmi2 -K1" 200)
check_finished under-srun "$job"

for mpiexec in mpiexec "srun --mpi=pmi2 -K1"; do
  name=killed-under-${mpiexec%% *}
  job=$(submit "$name" "$mpiexec" 3000)
  wait_for has_checkpoint "$name"
  kill -KILL "$(grep -o '"pid":[0-9]*' "$work/$name/status/rank-1.json" | cut -d: -f2)"
  check_finished "$name" "$job"
  cat "$work/$name/restarts.jsonl"
done

# Slurm's signal before the time limit: the job stops with a checkpoint and goes back to the queue.
job=$(submit interrupted mpiexec 1000000)
wait_for has_checkpoint interrupted
scancel --batch --signal=TERM "$job"
was_interrupted() { grep -q '"status": "interrupted"' "$work/interrupted/manifest.json"; }
wait_for was_interrupted
requeued() { scontrol show job "$job" | grep -Eq 'Restarts=1|JobState=PENDING'; }
wait_for requeued
echo "interrupted: saved and back in the queue"
scancel "$job"
wait_for has_left_queue "$job"

# Workers as an array in a partition whose jobs make way. gather_checkpoints, which --listen implies, is said, so that
# the theta files name the same config.
sed 's/"workers": 2/"workers": 5, "gather_checkpoints": true/' "$work/config.json" >"$work/elastic.json"
listen() {
  "$lopt" meta-train "$work/elastic.json" --out "$work/elastic" "$@" >>"$work/elastic.log" 2>&1 &
  daemons+=($!)
}
learner_says() { grep -q "$1" "$work/elastic.log"; }
have_joined() { [ "$(grep -c ' has joined; ' "$work/elastic.log")" -ge "$1" ]; }  # so many in all
listen --listen 127.0.0.1:0 --steps 1000000000
wait_for learner_says 'on 127.0.0.1:[0-9]'
address=$(grep -om1 '127\.0\.0\.1:[1-9][0-9]*' "$work/elastic.log")
job=$(LOPT=$lopt sbatch --parsable --partition=spare --array=0-1 --chdir="$work" "$here/workers.sbatch" "$address")
wait_for have_joined 2
wait_for has_checkpoint elastic
sbatch --parsable --ntasks="$(nproc)" --exclusive --chdir="$work" --output=urgent.log --wrap 'sleep 2' >"$work/urgent"
wait_for learner_says ', 0 processes are left'
wait_for have_joined 4
kill -TERM "${daemons[-1]}"
code=0
wait "${daemons[-1]}" || code=$?
[ $code = 75 ] || { echo "the learner ended with exit code $code after the stop, not 75" >&2; exit 1; }
steps=$(($(sed -n 's/.*"updates": \([0-9]*\).*/\1/p' "$work/elastic/manifest.json") + 50))
listen --resume --listen "$address" --steps $steps
wait "${daemons[-1]}"
check_finished elastic "$job"
"$lopt" meta-train "$work/elastic.json" --out "$work/alone" --steps $steps >"$work/alone.log"
cmp "$work/elastic/theta.safetensors" "$work/alone/theta.safetensors"
echo "elastic: an array of two workers made way and came back; $steps updates, with the theta of one process"
