#!/bin/bash
# The one command: installs what is missing, runs every test, leaves nothing running.
#
#     tests/run.sh                    all tests of all features
#     tests/run.sh --install-only     only install, as a first step of CI
#     tests/run.sh ARGS…              passed on to `cargo test --all-features`
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON_PACKAGES=(gemstone_utils==0.4.1 'psycopg[binary]>=3.1' 'sqlalchemy>=2.0')
python_home=${CARGO_TARGET_DIR:-target}/python

step() { echo "run.sh: $*"; }
fail() { echo "run.sh: $*" >&2; exit 1; }
has() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }
links() { has pkg-config && pkg-config --exists "$1"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# One Debian package a line, of those whose purpose is not served yet.
missing_packages() {
    has pkg-config || echo pkg-config
    has postgres || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || echo postgresql
    has psql || echo postgresql-client
    has mariadbd || has mysqld || echo mariadb-server
    has mariadb || has mysql || echo mariadb-client
    links libpq || echo libpq-dev
    links libmariadb || links mysqlclient || echo libmariadb-dev
    links sqlite3 || echo libsqlite3-dev
    local tool
    for tool in faketime strace pgbouncer jq; do
        has "$tool" || echo "$tool"
    done
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
}

install_packages() {
    local packages
    mapfile -t packages < <(missing_packages)
    if [ ${#packages[@]} = 0 ]; then
        step "system packages: nothing is missing"
        return
    fi
    has apt-get || fail "missing: ${packages[*]}. Without apt-get, please install them yourself."
    [ "$(id -u)" = 0 ] || has sudo || fail "missing: ${packages[*]}. Install them as root, or install sudo."
    step "installing ${packages[*]}"
    (
        # Debian starts a server as soon as it is installed, unless this says no (101). The tests start their own. In a
        # subshell, so that the trap removes our file, and only ours, however this ends.
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            trap 'as_root rm -f "$policy"' EXIT
            printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
            as_root chmod 755 "$policy"
        fi
        # needrestart would restart services that have nothing to do with us.
        apt=(env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -y -q -o DPkg::Lock::Timeout=300)
        as_root "${apt[@]}" update >/dev/null
        as_root "${apt[@]}" install --no-install-recommends "${packages[@]}" >/dev/null
    )
    mapfile -t packages < <(missing_packages)
    [ ${#packages[@]} = 0 ] || fail "still missing after the installation: ${packages[*]}"
}

python_is_right() {
    "$python_home/bin/python" -I - 2>/dev/null <<'PYTHON'
import importlib.metadata, gemstone_utils.election, psycopg, sqlalchemy
assert importlib.metadata.version("gemstone_utils") == "0.4.1"
PYTHON
}

install_python() {
    if python_is_right; then
        step "Python packages: nothing is missing"
        return
    fi
    step "making $python_home with ${PYTHON_PACKAGES[*]}"
    python3 -m venv --clear "$python_home"
    "$python_home/bin/python" -m pip install --quiet --disable-pip-version-check "${PYTHON_PACKAGES[@]}"
    python_is_right || fail "$python_home lacks the packages it was made for"
}

# The package whose lease files ours share wants a newer Python than Debian 12 has. Where there is none, the tests
# compare with bytes that the package has written.
newer_python() {
    local candidate
    for candidate in python3.1{3..9} "$HOME"/.pyenv/versions/3.1[3-9].*/bin/python; do
        if "$candidate" -c 'import sys, ensurepip, venv; assert sys.version_info >= (3, 13)' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

install_cadrumo() {
    cadrumo_home=${CARGO_TARGET_DIR:-target}/cadrumo
    local python
    python=$(newer_python)
    if "$cadrumo_home/bin/python" -I -c 'import cadrumo' 2>/dev/null; then
        step "cadrumo: nothing is missing"
    elif [ -z "$python" ]; then
        step "cadrumo: not installed, there is no Python 3.13 here; its recorded bytes stand in for it"
        cadrumo_home=
    else
        step "making $cadrumo_home with cadrumo==0.5.1"
        "$python" -m venv --clear "$cadrumo_home"
        "$cadrumo_home/bin/python" -m pip install --quiet --disable-pip-version-check cadrumo==0.5.1
    fi
}

# The live processes of this run: marked by their environment or, where a server overwrites that, by where they work.
leftovers() {
    local process
    for process in /proc/[0-9]*; do
        if marked "$process" 2>/dev/null; then
            echo "${process#/proc/}"
        fi
    done
}

marked() {
    [[ $(readlink "$1/cwd") == "$run_dir"/* ]] || tr '\0' '\n' <"$1/environ" | grep -qxF "LEASEHOLD_TEST_RUN=$run_dir"
}

run_tests() {
    run_dir=$(mktemp -d "${TMPDIR:-/tmp}/leasehold-run-XXXXXX")
    trap 'as_root rm -rf "$run_dir"' EXIT
    # The servers' accounts make and remove their directories in it.
    chmod 1777 "$run_dir"
    step "cargo test --locked --all-features $*"
    local result=0
    if [ -n "$cadrumo_home" ]; then
        export LEASEHOLD_CADRUMO_PYTHON
        LEASEHOLD_CADRUMO_PYTHON=$(realpath -s "$cadrumo_home/bin/python")
    fi
    LEASEHOLD_TEST_RUN=$run_dir TMPDIR=$run_dir LEASEHOLD_TEST_PYTHON=$(realpath -s "$python_home/bin/python") \
        cargo test --locked --all-features --no-fail-fast "$@" || result=$?

    # A server ends just after the test process that shared it.
    local pids tries=0
    while pids=$(leftovers) && [ -n "$pids" ] && [ $tries -lt 100 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    if [ -n "$pids" ]; then
        # shellcheck disable=SC2086  # one argument for each pid
        ps -o pid,stat,args -p ${pids//$'\n'/,} >&2 || true
        # shellcheck disable=SC2086
        as_root kill -KILL $pids || true
        fail "these processes outlived the tests"
    fi
    local rest
    rest=$(cd "$run_dir" && find . -mindepth 1 | head -n 20)
    [ -z "$rest" ] || fail "the tests left files behind: $rest"
    [ $result = 0 ] || fail "tests failed"
    step "all tests passed, nothing is left running"
}

has cargo || fail "cargo is missing: https://rustup.rs"
has cc || fail "a C compiler is missing: apt-get install gcc libc6-dev"
install_packages
install_python
install_cadrumo
if [ "${1:-}" = --install-only ]; then
    exit
fi
run_tests "$@"
