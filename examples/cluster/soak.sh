#!/bin/bash
# A learner and 64 worker processes on one core, one of them killed every second: the learner is never restarted, and theta has the bits of one
# process. `examples/cluster/soak.sh [SECONDS] [LOPT]` (600 seconds, build/lopt) ends with a line for each claim and exit code 0 if all hold.
set -euo pipefail
seconds=${1:-600}
lopt=$(realpath "${2:-build/lopt}")
work=$(mktemp -d)
processes=()
trap 'kill -9 "${processes[@]}" "${learner:-$$}" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
cat >config.json <<'END'
{"learned_optimizer": {"type": "MLPLOpt"}, "workers": 64, "meta_steps": 1000000000, "checkpoint_seconds": 60, "gather_checkpoints": true,
 "estimators": [{"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 10}, "num_tasks": 8, "trunc_length": 50, "std": 0.01,
                 "lengths": {"type": "LogUniformLengthSchedule", "min_length": 100, "max_length": 1000}}]}
END

"$lopt" meta-train config.json --out many --listen 127.0.0.1:0 --wait-for 64 >learner.txt 2>&1 &
learner=$!
until address=$(grep -om1 '127\.0\.0\.1:[1-9][0-9]*' learner.txt); do sleep 0.1; done
start() {
  taskset -c 0 "$lopt" worker --join "$address" --threads 1 >>workers.txt 2>&1 &
  processes+=($!)
  disown $!
}
for ((i = 0; i < 64; ++i)); do start; done
until grep -q '; 64 are there' learner.txt; do sleep 0.5; done
echo "64 worker processes are there; killing one every second for $seconds s"
for ((killed = 0; killed < seconds; ++killed)); do
  sleep 1
  victim=$((RANDOM % ${#processes[@]}))
  kill -9 "${processes[victim]}"
  processes=("${processes[@]:0:victim}" "${processes[@]:victim+1}")
  start
  kill -0 "$learner" || { tail -n 5 learner.txt; echo "the learner has ended"; exit 1; }
done
kill -TERM "$learner"
code=0
wait "$learner" || code=$?
steps=$(sed -n 's/.*"updates": \([0-9]*\).*/\1/p' many/manifest.json)
echo "killed: $killed worker processes; the learner's exit code after the stop: $code (75 is right); updates: $steps"
leases=$(grep -o 'leases: .*' learner.txt)
echo "$leases"
again=$(sed 's/.*(\([0-9.]*\) %).*/\1/' <<<"$leases")
failed=0
[ "$code" = 75 ] || failed=1
awk -v again="$again" 'BEGIN {exit !(again <= 5)}' || { echo "less than 95 % of inner steps were used"; failed=1; }

"$lopt" meta-train --resume --out many --steps "$steps" >again.txt 2>&1
"$lopt" meta-train config.json --out one --steps "$steps" >one.txt 2>&1
if cmp many/theta.safetensors one/theta.safetensors; then
  echo "theta: the bits of one process"
else
  echo "theta differs from that of one process"
  failed=1
fi
exit "$failed"
