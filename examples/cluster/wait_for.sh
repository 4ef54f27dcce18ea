#!/bin/bash
# For the scripts that try lopt on a cluster, which source this file and set `work`, the directory
# of their logs.

# wait_for COMMAND...: until it succeeds, at most a minute; after that the script ends.
wait_for() {
  local end=$((SECONDS + 60))
  until "$@" >"${work:?}/last" 2>&1; do
    if ((SECONDS > end)); then
      echo "waited for a minute: $*" >&2
      cat "${work:?}/last" >&2
      tail -n 20 "$work"/*.log >&2
      exit 1
    fi
    sleep 0.1
  done
}
