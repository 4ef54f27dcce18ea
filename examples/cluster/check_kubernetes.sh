#!/bin/bash
# What of elastic.yaml and the kubeflow-*.yaml can be tried without a cluster: the files are read, and the commands of their containers run here as
# they stand, in a network of their own where the names of the pods are this machine's. Elastic: the learner is stopped and begins again as
# Kubernetes would begin it. MPI: the launcher reaches the nodes by ssh, with keys and a hostfile as Kubeflow Trainer makes them. Only the directories
# of volumes lie elsewhere. Run as root, with iproute2, MPICH, openssl, openssh-server and python3-yaml installed, and lopt's Python package in
# PYTHONPATH if it is not installed:
#   check_kubernetes.sh PATH_TO_LOPT
set -euo pipefail

lopt=$(realpath "${1:?usage: check_kubernetes.sh PATH_TO_LOPT}")
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "check_kubernetes.sh: only root may make namespaces" >&2; exit 1; }
# A network, processes, and a table of host names of its own.
if [ -z "${LOPT_CHECK_NAMESPACE:-}" ]; then
  LOPT_CHECK_NAMESPACE=1 exec unshare --mount --net --pid --fork --mount-proc --kill-child "$0" "$lopt"
fi
. "$here/wait_for.sh"
work=$(mktemp -d /tmp/lopt-kubernetes-XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,runs,tls,etc/mpi,etc/lopt-ssh,tmp} /root/.ssh /run/sshd
ln -s "$lopt" "$work/bin/lopt"
ip link set lo up
cat >"$work/hosts" <<HOSTS
127.0.0.1 localhost $(hostname) lopt-learner first-elastic-learner-0-0.first-elastic
127.0.0.2 first-mpi-node-0-0.first-mpi
127.0.0.3 first-mpi-node-0-1.first-mpi
HOSTS
mount --bind "$work/hosts" /etc/hosts

# A script for each container, FILE/CONTAINER: the environment that Kubernetes would give its command, and the command.
python3 - "$work" "$here"/{elastic,kubeflow-elastic,kubeflow-mpi}.yaml <<'PYTHON'
import pathlib, re, shlex, sys, yaml

work = pathlib.Path(sys.argv[1])
for path in map(pathlib.Path, sys.argv[2:]):
    manifests = list(yaml.safe_load_all(path.read_text()))
    trainjob = [manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "TrainJob"]
    for manifest in manifests:
        template = manifest.get("spec", {}).get("template", {}).get("spec", {})
        jobs = template.get("replicatedJobs", [{"name": "", "template": {"spec": manifest["spec"]}}])
        for job in jobs:
            pod = job["template"]["spec"].get("template", {}).get("spec", {})
            volumes = {volume["name"] for volume in pod.get("volumes", [])}
            for container in pod.get("containers", []):
                mounts = {mount["name"] for mount in container["volumeMounts"]}
                assert mounts <= volumes, f"{container['name']} mounts {mounts - volumes}, which are no volumes"
                words = container.get("command", ["lopt"]) + container.get("args", [])  # lopt: the image's entry point
                text = " ".join(shlex.quote(word) for word in words)
                text = re.sub("/(runs|tls|etc/mpi|etc/lopt-ssh|tmp)/", rf"{work}\g<0>", text)
                for variable in container.get("env", []):
                    text = text.replace(f"$({variable['name']})", trainjob[0])
                environment = "".join(f"export {variable['name']}={trainjob[0]}\n" for variable in container.get("env", []))
                script = work / path.stem / "-".join(filter(None, [job["name"], container["name"]]))
                script.parent.mkdir(exist_ok=True)
                script.write_text(f"PATH={work}/bin:$PATH\n{environment}exec {text}\n")
PYTHON

cat >"$work/runs/config.json" <<'CONFIG'
{"learned_optimizer": {"type": "MLPLOpt"}, "workers": 4, "meta_steps": 1000, "gather_checkpoints": true,
 "estimators": [{"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 10}, "num_tasks": 4, "trunc_length": 50, "std": 0.01,
                 "lengths": {"type": "LogUniformLengthSchedule", "min_length": 100, "max_length": 300}}]}
CONFIG
for trainjob in first-elastic first-mpi; do cp "$work/runs/config.json" "$work/runs/$trainjob.json"; done
"$lopt" meta-train "$work/runs/config.json" --out "$work/alone" >"$work/alone.log"

# A container with a log of its own.
container() {
  log=$work/${1//\//-}-${2:-0}.log
  sh "$work/$1" >>"$log" 2>&1 &
}
has_joined() { [ "$(grep -c ' has joined; ' "$1")" -ge "$2" ]; }  # so often in all
has_updates() { [ "$(wc -l <"$work/runs/$1/metrics.jsonl")" -gt 20 ]; }
# check_theta FILE RUN: that of one process.
check_theta() {
  cmp "$work/runs/$2/theta.safetensors" "$work/alone/theta.safetensors"
  echo "$1: finished, with the theta of one process"
}

# check_elastic FILE LEARNER WORKER RUN: a learner is stopped and begins again, and two workers find it.
check_elastic() {
  local learner learner_log workers=() code=0 process
  (
    mkdir "$work/$1.ca" && cd "$work/$1.ca"
    new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    $new -x509 -keyout ca.key -out ca.pem -subj /CN=ca
    echo subjectAltName=DNS:lopt-learner,DNS:first-elastic-learner-0-0.first-elastic >names
    for name in learner worker; do
      $new -keyout $name.key -out $name.csr -subj /CN=$name
      openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -out $name.pem -days 2 -extfile names
    done
    (umask 077; openssl rand -hex 32 >token)
    mv ./* "$work/tls"
  ) >"$work/openssl.log" 2>&1
  container "$1/$2"
  learner=$! learner_log=$log
  container "$1/$3" 1
  workers+=($!)
  container "$1/$3" 2
  workers+=($!)
  wait_for has_joined "$learner_log" 2
  wait_for has_updates "$4"
  kill -TERM "$learner"
  wait "$learner" || code=$?
  [ $code = 75 ] || { echo "the learner ended with exit code $code after the stop, not 75" >&2; tail -n 5 "$learner_log" >&2; exit 1; }
  echo "$1.yaml: two workers joined the learner; it was stopped and begins again"
  container "$1/$2"
  for process in $! "${workers[@]}"; do wait "$process"; done
  check_theta "$1.yaml" "$4"
}

check_elastic elastic learner worker first
check_elastic kubeflow-elastic learner-node worker-worker first-elastic

# A volume of a secret: links to files of mode 640 in a directory that all may write.
ssh-keygen -q -t ecdsa -b 521 -N '' -f "$work/etc/lopt-ssh/.key"
for name in id_rsa:.key id_rsa.pub:.key.pub authorized_keys:.key.pub; do
  ln -s "${name#*:}" "$work/etc/lopt-ssh/${name%:*}"
done
chmod 640 "$work"/etc/lopt-ssh/.key*
chmod 1777 "$work/etc/lopt-ssh"
printf 'first-mpi-node-0-%d.first-mpi slots=2\n' 0 1 >"$work/etc/mpi/hostfile"
mount -t tmpfs -o mode=1777 tmpfs /root/.ssh && chmod 700 /root/.ssh
echo 'StrictHostKeyChecking no' >/root/.ssh/config  # as the Containerfile has for all
container kubeflow-mpi/node-node
wait_for bash -c 'exec 3<>/dev/tcp/127.0.0.2/22'
container kubeflow-mpi/launcher-node
wait $! || { tail -n 20 "$log" >&2; exit 1; }
check_theta kubeflow-mpi.yaml first-mpi
ls "$work"/runs/first-mpi/status/rank-{0,1,2,3}.json >/dev/null # of 2 nodes with 2 slots

for file in kubeflow-elastic/learner kubeflow-mpi/launcher; do
  env -u KUBEFLOW_TRAINER_SERVER_URL sh "$work/$file-progress" >"$work/progress.log" 2>&1 || { cat "$work/progress.log" >&2; exit 1; }
  echo "${file%/*}.yaml: $(tail -n 1 "$work/progress.log")"
done
