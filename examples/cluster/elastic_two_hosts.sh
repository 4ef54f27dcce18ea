#!/bin/bash
# Elastic meta-training across two hosts, which are network namespaces of this machine with a cable between them: the learner on one, workers on
# the other that come, are killed, lose the cable and find it again, with certificates on both sides and a token. theta has the bits of one process.
# Run as root, with iproute2 and openssl installed:
#   elastic_two_hosts.sh PATH_TO_LOPT
set -euo pipefail

lopt=$(realpath "${1:?usage: elastic_two_hosts.sh PATH_TO_LOPT}")
. "$(dirname "$0")/wait_for.sh"
fail() { echo "elastic_two_hosts.sh: $1" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "only root may make network namespaces"
for program in ip openssl; do
  command -v $program >/dev/null || fail "$program is not installed"
done
work=$(mktemp -d /tmp/lopt-hosts-XXXXXX)
a=lopt-a-$$
b=lopt-b-$$
processes=()

stop() {
  kill -KILL "${processes[@]}" 2>/dev/null || true
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

# A CA, certificates for both sides, and a token, as in docs/distributed.md.
(
  cd "$work"
  new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
  $new -x509 -keyout ca.key -out ca.pem -subj /CN=ca
  echo subjectAltName=IP:10.97.0.1 >names
  for name in learner worker; do
    $new -keyout $name.key -out $name.csr -subj /CN=$name
    openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -out $name.pem -days 2 -extfile names
  done
  (umask 077; openssl rand -hex 32 >token)
) >"$work/openssl.log" 2>&1
tls() { echo "--tls-cert $work/$1.pem --tls-key $work/$1.key --tls-ca $work/ca.pem --token-file $work/token"; }

# gather_checkpoints is what --listen implies; said here, so that the theta files of all runs name the same config.
cat >"$work/config.json" <<'CONFIG'
{"learned_optimizer": {"type": "MLPLOpt"},
 "theta_opt": {"type": "Adam", "learning_rate": 1e-3},
 "estimators": [
   {"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 10}, "num_tasks": 4,
    "trunc_length": 50, "std": 0.01,
    "lengths": {"type": "LogUniformLengthSchedule", "min_length": 100, "max_length": 300},
    "random_initial_iteration_offset": 300}],
 "workers": 5, "worker_timeout_seconds": 3, "gather_checkpoints": true}
CONFIG

listen() {
  ip netns exec $a "$lopt" meta-train "$work/config.json" --out "$work/run" --listen 10.97.0.1:4711 $(tls learner) "$@" >>"$work/learner.log" 2>&1 &
  learner=$!
  processes+=($learner)
}
join() {
  ip netns exec $b "$lopt" worker --join 10.97.0.1:4711 --threads 1 $(tls worker) >>"$work/workers.log" 2>&1 &
  worker=$!
  processes+=($worker)
}
has_joined() { [ "$(grep -c ' has joined; ' "$work/learner.log")" -ge "$1" ]; }  # so often in all
updates() { wc -l <"$work/run/metrics.jsonl"; }
more_than() { [ "$(updates)" -gt "$1" ]; }
wait_for_more() { wait_for more_than $(($(updates) + 50)); }

listen --steps 1000000000
join
first=$worker
join
second=$worker
wait_for has_joined 2
wait_for_more
echo "two workers of the other host: $(updates) updates"

if ip netns exec $b "$lopt" worker --join 10.97.0.1:4711 --insecure --patience 0 >"$work/stranger.log" 2>&1; then
  fail "a process without a certificate got in"
fi
echo "without a certificate: $(cat "$work/stranger.log")"

kill -KILL "$first"
wait "$first" 2>/dev/null || true
wait_for grep -q ', 1 processes are left' "$work/learner.log"
join
third=$worker
wait_for has_joined 3
wait_for_more
echo "one killed, another joined: $(updates) updates"

ip -n $b link set cable down
cut=$SECONDS
wait_for grep -q ', 0 processes are left' "$work/learner.log"
echo "the cable is cut; the learner missed both workers $((SECONDS - cut)) s later and waits"
ip -n $b link set cable up
wait_for has_joined 5
wait_for_more
echo "the cable is mended; both have joined again: $(updates) updates"

kill -TERM "$learner"
code=0
wait "$learner" || code=$?
steps=$(sed -n 's/.*"updates": \([0-9]*\).*/\1/p' "$work/run/manifest.json")
[ $code = 75 ] || fail "the learner ended with exit code $code after the stop, not 75"
echo "stopped after $steps updates"
listen --resume --steps $((steps + 50))
wait "$learner"
wait "$second"
wait "$third"
grep 'leases: ' "$work/learner.log"

"$lopt" meta-train "$work/config.json" --steps $((steps + 50)) --out "$work/alone" --threads 1 >/dev/null
cmp "$work/run/theta.safetensors" "$work/alone/theta.safetensors"
echo "finished after $((steps + 50)) updates, with the theta of one process"
