# Shared by quickstart and run_tests, which source it: installs packages, configures and builds.
# They run from the repository root.

# What building and running needs; gnuplot draws the report's plots.
build_packages=(
  cmake ninja-build ccache g++ git pkg-config
  libeigen3-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libboost-context-dev libboost-program-options-dev
  libhwy-dev libtbb-dev mpich libmpich-dev zlib1g-dev libzip-dev libpng-dev libprotobuf-dev protobuf-compiler
  libgrpc++-dev protobuf-compiler-grpc
  doctest-dev gnuplot-nox
)
# What torch tasks need besides: 60 % of the download.
torch_packages=(libtorch-dev libopenblas0-pthread)
# What the Python package is built with; nanobind comes from PyPI (python_environment).
python_packages=(python3-dev python3-venv python3-numpy)
# What the tests need besides: the Python optimizer runs under PyTorch, certificates are made.
test_packages=(openssl python3-torch)
# What only nightly tests need: the report is looked at in a browser, shells complete command lines.
nightly_packages=(chromium fish fonts-dejavu-core zsh)
lint_packages=(clang-format clang-tidy)
# What the readers are fuzzed with: libFuzzer is in the second.
fuzz_packages=(clang libclang-rt-14-dev)
# What the documentation needs.
docs_packages=(doxygen python3-sphinx python3-myst-parser python3-breathe python3-sphinx-inline-tabs furo)

# install_packages NAME...: installs what is missing of these Debian packages. Returns at once where
# nothing is. Stops with the list where it cannot install: not Debian 12, or neither root nor sudo.
install_packages() {
  local system="" missing=() apt=(apt-get) name
  if [ "${LOPT_NO_INSTALL:-}" = 1 ]; then
    return
  fi
  if [ -r /etc/os-release ]; then
    system=$(. /etc/os-release && echo "${ID:-} ${VERSION_ID:-}")
  fi
  if [ "$system" != "debian 12" ]; then
    {
      echo "This script installs packages on Debian 12 only; this system is '${system:-unknown}'."
      echo "Install what these Debian packages hold, then run it again with LOPT_NO_INSTALL=1:"
      printf '  %s\n' "$@"
    } >&2
    exit 1
  fi
  for name in "$@"; do
    if [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" != installed ]; then
      missing+=("$name")
    fi
  done
  if [ ${#missing[@]} = 0 ]; then
    return
  fi
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      {
        echo "These packages are missing, and this user is not root and has no sudo. As root, run:"
        echo "  apt-get install --no-install-recommends ${missing[*]}"
      } >&2
      exit 1
    fi
    apt=(sudo apt-get)
  fi
  echo "Installing ${missing[*]}"
  "${apt[@]}" update -q
  DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -q -y --no-install-recommends "${missing[@]}"
}

# python_environment PRESET_DIRECTORY: makes a virtual environment of Debian's python3 there, with what pyproject.toml builds the Python package
# with. CMake finds it. Returns at once where it is.
python_environment() {
  local environment=$1/python-env requires
  if [ "${LOPT_NO_INSTALL:-}" = 1 ]; then
    return
  fi
  requires=$(sed -n 's/^requires = \[\(.*\)\]$/\1/p' pyproject.toml | tr -d ',"')
  if [ "$(cat "$environment/requires" 2>/dev/null)" = "$requires" ]; then
    return
  fi
  /usr/bin/python3 -m venv --clear --system-site-packages "$environment"
  # shellcheck disable=SC2086  # a list
  "$environment/bin/python" -m pip install -q --disable-pip-version-check $requires
  echo "$requires" >"$environment/requires"
}

# build PRESET [TARGET...]: configures and builds; without targets, everything.
build() {
  local preset=$1 log
  shift
  log=$(mktemp)
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    echo "Configuring the build failed; the reason is above." >&2
    exit 1
  fi
  rm -f "$log"
  cmake --build --preset "$preset" ${1:+--target "$@"}
}
