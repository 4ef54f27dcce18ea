#!/bin/bash
# Meta-training across two hosts, which are network namespaces of this machine with a cable between
# them: the ranks talk over tcp, not through shared memory. Checks a clean end with 2 and 5 ranks,
# that the result is that of one process, and what happens when a rank of the other host is killed,
# and when the cable is cut and mended. Run as root, with iproute2 and MPICH installed:
#   two_hosts.sh PATH_TO_LOPT
set -euo pipefail

lopt=$(realpath "${1:?usage: two_hosts.sh PATH_TO_LOPT}")
. "$(dirname "$0")/wait_for.sh"
work=$(mktemp -d /tmp/lopt-hosts-XXXXXX)
a=lopt-a-$$
b=lopt-b-$$

stop() {
  [ -z "${launch:-}" ] || kill -KILL "$launch" 2>/dev/null || true
  ip netns delete $a 2>/dev/null || true
  ip netns delete $b 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT

ip netns add $a
ip netns add $b
ip link add cable netns $a type veth peer name cable netns $b
ip -n $a address add 10.97.0.1/24 dev cable
ip -n $b address add 10.97.0.2/24 dev cable
for host in $a $b; do
  ip -n $host link set lo up
  ip -n $host link set cable up
done

# Takes the place of ssh: [options] HOST COMMAND...
cat >"$work/remote" <<REMOTE
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in
  10.97.0.1) host=$a ;;
  10.97.0.2) host=$b ;;
esac
shift
exec ip netns exec \$host sh -c "\$*"
REMOTE
chmod +x "$work/remote"

# A command on the first host.
on_a() { exec ip netns exec $a env UCX_TLS=tcp,self "$@"; }
# -disable-auto-cleanup: across hosts the ranks end without MPI_Finalize, which can hang over tcp.
mpiexec="mpiexec -disable-auto-cleanup -iface cable -launcher ssh -launcher-exec $work/remote"
mpiexec+=" -hosts 10.97.0.1,10.97.0.2 -ppn 1"

cat >"$work/config.json" <<'CONFIG'
{"learned_optimizer": {"type": "MLPLOpt"},
 "theta_opt": {"type": "Adam", "learning_rate": 1e-3},
 "estimators": [
   {"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 10}, "num_tasks": 4,
    "trunc_length": 50, "std": 0.01,
    "lengths": {"type": "LogUniformLengthSchedule", "min_length": 100, "max_length": 300},
    "random_initial_iteration_offset": 300}],
 "workers": 5, "checkpoint_steps": 50, "worker_timeout_seconds": 3}
CONFIG

check_finished() {
  grep -q '"status": "finished"' "$work/$1/manifest.json" || { echo "$1: not finished" >&2; exit 1; }
  cmp "$work/$1/theta.safetensors" "$work/alone/theta.safetensors"
  echo "$1: finished, with the theta of one process"
}

"$lopt" meta-train "$work/config.json" --steps 1000 --out "$work/alone" --threads 1 >/dev/null

for ranks in 2 5; do
  (on_a "$lopt" launch -n $ranks --max-restarts 0 --worker-timeout 3 --mpiexec "$mpiexec" -- \
    meta-train "$work/config.json" --steps 1000 --threads 1 --out "$work/$ranks-ranks")
  check_finished $ranks-ranks
done

# A rank of the other host is killed: its guard there tells, long before its peers miss it.
on_a "$lopt" launch -n 2 --max-restarts 0 --worker-timeout 3 --mpiexec "$mpiexec" -- \
  meta-train "$work/config.json" --steps 1000 --threads 1 \
  --out "$work/killed" >"$work/killed.log" 2>&1 &
launch=$!
wait_for test -e "$work/killed/checkpoints/step-00000050"
kill -KILL "$(grep -o '"pid":[0-9]*' "$work/killed/status/rank-1.json" | cut -d: -f2)"
killed=$SECONDS
wait_for test -s "$work/killed/restarts.jsonl"
echo "the job of a killed rank ended $((SECONDS - killed)) s later:"
grep '"reason":"killed"' "$work/killed/restarts.jsonl"
wait $launch
launch=
check_finished killed

# The cable is cut: what is across it counts as hung. When it is mended the next restart goes on.
on_a "$lopt" launch -n 5 --max-restarts 10 --start-timeout 8 --worker-timeout 3 --mpiexec "$mpiexec" -- \
  meta-train "$work/config.json" --steps 1000 --threads 1 --out "$work/cut" >"$work/cut.log" 2>&1 &
launch=$!
wait_for test -e "$work/cut/checkpoints/step-00000050"
ip -n $b link set cable down
echo "the cable is cut"
cut=$SECONDS
wait_for test -s "$work/cut/restarts.jsonl"
echo "the job ended $((SECONDS - cut)) s later:"
grep 'has been silent' "$work/cut.log"
cat "$work/cut/restarts.jsonl"
ip -n $b link set cable up
echo "the cable is mended"
wait $launch
launch=
tail -n 3 "$work/cut.log"
check_finished cut
