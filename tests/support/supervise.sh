# Runs one server for one test process and outlives it by a moment: however that process ends, its end of the pipe on
# our standard input is closed, and then the server is killed and its directory removed.
#
# $1 the directory; $2 the signal at the end; the rest is the command line of the server.
dir=$1 last=$2
shift 2
pid=

# Only `wait` reaps the server, so its pid cannot have passed to another process. CONT: it may have been stopped.
halt() {
    [ -n "$pid" ] || return 0
    kill -s "$1" "$pid"
    kill -s CONT "$pid"
    wait "$pid"
    pid=
}

while read -r word signal; do
    case $word in
    start)
        halt KILL
        "$@" >>"$dir/log" 2>&1 &
        pid=$!
        echo "$pid"
        ;;
    stop)
        halt "$signal"
        echo stopped
        ;;
    esac
done

halt "$last"
# A PostgreSQL that was killed could not release its System V segment; it noted key and id on this line.
segment=$(sed -n 7p "$dir/data/postmaster.pid")
[ -z "$segment" ] || ipcrm -m "${segment##* }"
# Again while something that was started beside us still writes there.
tries=0
while [ -e "$dir" ] && [ "$tries" -lt 50 ]; do
    rm -rf -- "$dir"
    tries=$((tries + 1))
    [ ! -e "$dir" ] || sleep 0.1
done
