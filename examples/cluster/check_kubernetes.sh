#!/bin/bash
# What of elastic.yaml can be tried without a cluster: the file is read, and the commands of its containers run here as they stand, in a network of
# their own where lopt-learner is this machine: the learner is stopped and begins again as Kubernetes would begin it. Only the directories /runs and
# /tls lie elsewhere. Run as root, with iproute2, openssl and python3-yaml installed:
#   check_kubernetes.sh PATH_TO_LOPT
set -euo pipefail

lopt=$(realpath "${1:?usage: check_kubernetes.sh PATH_TO_LOPT}")
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "check_kubernetes.sh: only root may make namespaces" >&2; exit 1; }
# A network and a table of host names of its own.
if [ -z "${LOPT_CHECK_NAMESPACE:-}" ]; then
  LOPT_CHECK_NAMESPACE=1 exec unshare --mount --net "$0" "$lopt"
fi
. "$here/wait_for.sh"
work=$(mktemp -d /tmp/lopt-kubernetes-XXXXXX)
processes=()
stop() {
  kill -KILL "${processes[@]}" 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT
mkdir "$work/bin" "$work/runs" "$work/tls"
ln -s "$lopt" "$work/bin/lopt"
ip link set lo up
echo "127.0.0.1 localhost lopt-learner" >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts

# A script for each container: the environment that Kubernetes would give its command, and the command.
python3 - "$here/elastic.yaml" "$work" <<'PYTHON'
import shlex, sys, yaml

work = sys.argv[2]
for manifest in yaml.safe_load_all(open(sys.argv[1])):
    if manifest["kind"] == "Service":
        continue
    pod = manifest["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts <= volumes, f"{container['name']} mounts {mounts - volumes}, which are no volumes"
        words = container.get("command", ["lopt"]) + container["args"]  # lopt: the image's entry point
        text = " ".join(shlex.quote(word) for word in words)
        for mount in container["volumeMounts"]:
            text = text.replace(mount["mountPath"] + "/", work + mount["mountPath"] + "/")
        with open(f"{work}/{container['name']}", "w") as script:
            script.write(f"PATH={work}/bin:$PATH\nexec {text}\n")
PYTHON

(
  cd "$work/tls"
  new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
  $new -x509 -keyout ca.key -out ca.pem -subj /CN=ca
  echo subjectAltName=DNS:lopt-learner >names
  for name in learner worker; do
    $new -keyout $name.key -out $name.csr -subj /CN=$name
    openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -out $name.pem -days 2 -extfile names
  done
  (umask 077; openssl rand -hex 32 >token)
) >"$work/openssl.log" 2>&1

cat >"$work/runs/config.json" <<'CONFIG'
{"learned_optimizer": {"type": "MLPLOpt"}, "workers": 4, "meta_steps": 1000, "gather_checkpoints": true,
 "estimators": [{"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 10}, "num_tasks": 4, "trunc_length": 50, "std": 0.01,
                 "lengths": {"type": "LogUniformLengthSchedule", "min_length": 100, "max_length": 300}}]}
CONFIG
container() {
  sh "$work/$1" >>"$work/$1.log" 2>&1 &
  processes+=($!)
}
has_joined() { [ "$(grep -c ' has joined; ' "$work/learner.log")" -ge "$1" ]; }  # so often in all
has_updates() { [ "$(wc -l <"$work/runs/first/metrics.jsonl")" -gt "$1" ]; }

container learner
learner=${processes[-1]}
container worker
container worker
workers=("${processes[@]:1}")
wait_for has_joined 2
wait_for has_updates 20
kill -TERM "$learner"
code=0
wait "$learner" || code=$?
[ $code = 75 ] || { echo "the learner ended with exit code $code after the stop, not 75" >&2; tail -n 5 "$work/learner.log" >&2; exit 1; }
echo "elastic.yaml: two workers joined the learner; it was stopped"
container learner
for process in "${processes[-1]}" "${workers[@]}"; do wait "$process"; done
"$lopt" meta-train "$work/runs/config.json" --out "$work/alone" >"$work/alone.log"
cmp "$work/runs/first/theta.safetensors" "$work/alone/theta.safetensors"
echo "elastic.yaml: begun again it found them and finished, with the theta of one process"
