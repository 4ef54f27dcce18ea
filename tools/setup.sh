# Shared by quickstart and run_tests, which source it: installs packages, configures and builds.
# They run from the repository root.

# The command from the repository root, and as it was typed.
command_line="tools/$(basename "$0")$([ $# = 0 ] || printf ' %q' "$@")"
typed="$(printf '%q' "$0")${command_line#"tools/$(basename "$0")"}"

# What building and running needs.
build_packages=(
  cmake ninja-build ccache g++ git pkg-config
  libeigen3-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libboost-context-dev libboost-program-options-dev
  libhwy-dev libtbb-dev mpich libmpich-dev zlib1g-dev libzip-dev libpng-dev libprotobuf-dev protobuf-compiler
  libgrpc++-dev protobuf-compiler-grpc
  doctest-dev
)
# What torch tasks need besides: 60 % of the download.
torch_packages=(libtorch-dev libopenblas0-pthread)
# What the Python package is built with; nanobind comes from PyPI (python_environment).
python_packages=(python3-dev python3-venv python3-numpy)
# What the tests need besides: they are linked by mold, the Python optimizer runs under PyTorch, certificates are made, manifests are compared with
# schemas.
test_packages=(mold openssl python3-jsonschema python3-torch python3-yaml)
# What only nightly tests need, and that of the manual page: the report is looked at in a browser, shells complete command lines, the notebook is run, bare
# roots are made.
nightly_packages=(chromium fish fonts-dejavu-core man-db mmdebstrap python3-ipykernel python3-nbclient uidmap zsh)
# What makes a Debian package (cpack).
packaging_packages=(dpkg-dev file)
lint_packages=(clang-format clang-tidy)
# What the readers are fuzzed with; the name of libFuzzer's package has clang's version.
fuzz_packages=(clang)
# What the documentation needs, with what the Python package imports; Sphinx and its like come from PyPI (docs_environment).
docs_packages=(doxygen python3-venv python3-numpy python3-torch)

# The system, as "debian 12".
system=unknown
if [ -r /etc/os-release ]; then
  system=$(. /etc/os-release && echo "${ID:-unknown} ${VERSION_ID:-}")
fi
case $system in
  "debian 12") fuzz_packages+=(libclang-rt-14-dev) ;;
  "debian 13") fuzz_packages+=(libclang-rt-19-dev) ;;
  "ubuntu 24.04") fuzz_packages+=(libclang-rt-18-dev) ;;
esac

# offered NAME: whether the system has such a package, by the lists that apt-get update fetches. Where it has none of this name, apt-cache takes the
# name for a pattern, as which "g++" is part of others.
offered() {
  [[ $(LC_ALL=C apt-cache policy "$1" 2>/dev/null) == "$1:"*"Candidate: "[^\(]* ]]
}

# lists_fetched: whether apt knows of packages that are not installed.
lists_fetched() {
  [[ $(LC_ALL=C apt-cache policy "${build_packages[0]}" 2>/dev/null) == *" Packages"* ]]
}

# install_packages NAME...: installs what is missing of these packages. Returns at once where nothing is. Where it cannot install it stops, with one
# command to paste.
install_packages() {
  local missing=() wanted=() left_out=() apt=() name again
  if [ "${LOPT_NO_INSTALL:-}" = 1 ]; then
    return
  fi
  again="LOPT_NO_INSTALL=1 $typed"
  case $system in
    "debian 12" | "debian 13" | "ubuntu 24.04") ;;
    *)
      echo "Packages are installed on Debian 12 and 13 and Ubuntu 24.04 only; this system is '$system'." >&2
      if command -v apt-get >/dev/null; then
        echo "It has apt-get, so this may do, where the names are the same:" >&2
        echo "  sudo apt-get update && sudo apt-get install --no-install-recommends $* && $again" >&2
      else
        {
          echo "In a container of Debian it goes on (docker does, too):"
          echo "  podman run --rm -it -v $(printf '%q' "$PWD"):/lopt:z -w /lopt debian:12 $command_line"
          echo "Without one, install what these Debian packages hold, then run $again:"
          printf '  %s\n' "$*"
        } >&2
      fi
      exit 1
      ;;
  esac
  for name in "$@"; do
    if [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" != installed ]; then
      missing+=("$name")
    fi
  done
  if [ ${#missing[@]} = 0 ]; then
    return
  fi
  if [ "$(id -u)" = 0 ]; then
    apt=(apt-get)
  elif command -v sudo >/dev/null && sudo -l apt-get >/dev/null; then
    apt=(sudo apt-get)
  fi
  if [ ${#apt[@]} != 0 ]; then
    "${apt[@]}" update -q || true  # a repository of another may fail: the lists say what there is
    if ! lists_fetched; then
      {
        echo "No lists of packages were fetched, for the reason above, so nothing can be installed."
        echo "With what is installed: $again"
      } >&2
      exit 1
    fi
  fi
  # What some tests want, not every system has: Ubuntu's Chromium is none of its packages.
  for name in "${missing[@]}"; do
    if [[ " ${torch_packages[*]} ${test_packages[*]} ${nightly_packages[*]} " == *" $name "* ]] && lists_fetched && ! offered "$name"; then
      left_out+=("$name")
    else
      wanted+=("$name")
    fi
  done
  if [ ${#left_out[@]} != 0 ]; then
    echo "This system does not offer ${left_out[*]}: what needs them is left out or skipped, with the reason"
  fi
  if [ ${#wanted[@]} = 0 ]; then
    return
  fi
  if [ ${#apt[@]} = 0 ]; then
    {
      echo "These packages are missing, and this user is not root and may not use sudo. As root, run:"
      echo "  apt-get update && apt-get install --no-install-recommends ${wanted[*]}"
    } >&2
    exit 1
  fi
  echo "Installing ${wanted[*]}"
  DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -q -y --no-install-recommends "${wanted[@]}"
}

# virtual_environment DIRECTORY REQUIREMENT...: makes a virtual environment of Debian's python3 there, with these packages of PyPI. Returns at once where
# it is. Where it cannot be made it stops, and the next call begins anew.
virtual_environment() {
  local environment=$1
  shift
  if [ "$(cat "$environment/requires" 2>/dev/null)" = "$*" ]; then
    return
  fi
  if ! /usr/bin/python3 -m venv --clear --system-site-packages "$environment" ||
    ! "$environment/bin/python" -m pip install -q --disable-pip-version-check "$@"; then
    {
      echo "$command_line: the virtual environment $environment was not made; the reason is above."
      echo "It needs python3-venv, and PyPI (behind a proxy set https_proxy; PIP_INDEX_URL names a mirror) for $*"
      echo "LOPT_NO_INSTALL=1 tools/run_tests fetches nothing, and leaves out what needs it."
    } >&2
    exit 1
  fi
  echo "$*" >"$environment/requires"
}

# python_environment BUILD: makes BUILD/python-env, with what pyproject.toml builds the Python package with. CMake finds it.
python_environment() {
  local requires
  if [ "${LOPT_NO_INSTALL:-}" = 1 ]; then
    return
  fi
  read -ra requires < <(sed -n 's/^requires = \[\(.*\)\]$/\1/p' pyproject.toml | tr -d ',"')
  virtual_environment "$1/python-env" "${requires[@]}"
}

# docs_environment BUILD: makes BUILD/docs-env, with the tools of docs/site/requirements.txt, which build the documentation.
docs_environment() {
  local requires
  mapfile -t requires < <(grep -v '^#' docs/site/requirements.txt)
  if [ "${LOPT_NO_INSTALL:-}" = 1 ]; then
    if [ "$(cat "$1/docs-env/requires" 2>/dev/null)" != "${requires[*]}" ]; then
      echo "$command_line: $1/docs-env lacks the versions of docs/site/requirements.txt; without LOPT_NO_INSTALL=1 they are installed there" >&2
      exit 1
    fi
    return
  fi
  virtual_environment "$1/docs-env" "${requires[@]}"
}

# build PRESET [-D...] [TARGET...]: configures, with these variables, and builds; without targets, everything.
build() {
  local preset=$1 variables=() log start=$SECONDS failed=0
  shift
  while [[ ${1:-} == -D* ]]; do
    variables+=("$1")
    shift
  done
  log=$(mktemp)
  echo "Configuring (cmake --preset $preset${variables[*]:+ ${variables[*]}})"
  # Of what CMake says: what was found and what is left out.
  cmake --preset "$preset" "${variables[@]}" 2>&1 | tee "$log" | { grep --line-buffered -E '^-- +(The|Found|Asking|GPU|Kernels|.* left out)' || true; } ||
    failed=1
  if [ $failed = 1 ]; then
    cat "$log" >&2
    rm -f "$log"
    echo "Configuring the build failed; the reason is above." >&2
    exit 1
  fi
  rm -f "$log"
  echo "Configured in $((SECONDS - start)) s"
  cmake --build --preset "$preset" ${1:+--target "$@"}
}
