#!/bin/sh
# distributed.sh LOPT MPIEXEC: one experiment on one process and on three, with the same weights.
set -eu
lopt=$1 mpiexec=$2
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

# Four logical workers belong to the experiment, whoever computes them.
"$lopt" meta-train --preset smoke --set workers=4 --out "$runs/one"
"$mpiexec" -n 3 "$lopt" meta-train --preset smoke --set workers=4 --out "$runs/three"
cmp "$runs/one/theta.safetensors" "$runs/three/theta.safetensors"

# Each gradient may come late by up to two updates: faster where workers differ, but no two runs are alike.
"$mpiexec" -n 3 "$lopt" meta-train --preset smoke --set workers=4 --out "$runs/async" \
  --set 'mode={"type": "Async", "batch_size": 2, "staleness": 2}'
