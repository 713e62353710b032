#!/bin/bash
# Our calls, pgbench's limits and the published Python package, on one PostgreSQL server in alternating rounds.
#
#     benches/compare.sh                            the table, in about five minutes
#     benches/compare.sh --rounds 9 --seconds 2     the same for longer
#     benches/compare.sh statements                 the statements of each call, counted in the server's log
#     benches/compare.sh bloat [SECONDS]            beats with an old snapshot held open, 600 s by default
set -euo pipefail
cd "$(dirname "$0")/.."

tests/run.sh --install-only >&2
python=$(realpath -s "${CARGO_TARGET_DIR:-target}/python/bin/python")
case ${1:-} in
    statements | bloat) ;;
    *) set -- table "$@" ;;
esac
LEASEHOLD_TEST_PYTHON=$python exec cargo bench --quiet --all-features --bench compare -- "$@"
