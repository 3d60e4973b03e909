#!/usr/bin/env bash
# Runs Lantern many times in ways that once crashed it, and counts how the processes end: bench, run, run on one core, and
# serve with eight clients that is told to stop in the middle of their answers; all of it beside a program that keeps one
# core busy. A process that dies of a signal, prints a crash of V8 or ends with an unexpected code is a failure: its output
# is kept, and the script exits with 1.
#
#   scripts/stress.sh MODEL.gguf [RUNS=500]     RUNS in all; 500 of a tiny model take about half an hour on two cores

set -u
cd "$(dirname "$0")/.."

model=${1:?usage: scripts/stress.sh MODEL.gguf [RUNS]}
runs=${2:-500}
export NO_COLOR=1
node=$PWD/node_modules/.bin/node
[ -x "$node" ] || node=node
lantern=("$node" bin/lantern.js)
kept=$(mktemp -d)
out=$kept/out
declare -A done_of failed_of
failures=0

# A core's worth of other work, in pieces, so that threads lose and get their core at random.
(while :; do for ((i = 0; i < 20000; i++)); do :; done; sleep 0.01; done) &
hog=$!
server=
finish() {
  kill "$hog" 2>/dev/null
  [ -z "$server" ] || kill -9 "$server" 2>/dev/null
}
trap finish EXIT
trap 'echo; exit 130' INT TERM

bench() { "${lantern[@]}" bench -m "$model" -r 2 >"$out" 2>&1; }
run() { "${lantern[@]}" run -m "$model" -p "Once upon a time" -n $((RANDOM % 60 + 1)) >"$out" 2>&1; }
one_core() { taskset -c 0 "${lantern[@]}" run -m "$model" -p "One day" -n $((RANDOM % 60 + 1)) -t 2 >"$out" 2>&1; }

serve() {
  "${lantern[@]}" serve -m "$model" --port 0 --no-sessions --no-web --parallel 4 >"$out" 2>&1 &
  server=$!
  local url='' tries
  for ((tries = 0; tries < 600; tries++)); do
    url=$(grep -oE 'http://[0-9a-z.]+:[0-9]+' "$out" | head -n 1)
    [ -n "$url" ] && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  local clients=() client
  for ((client = 0; client < 8; client++)); do
    curl -sN -m 60 "$url/v1/completions" -H 'content-type: application/json' \
      -d "{\"prompt\":\"The $client\",\"max_tokens\":200,\"stream\":true,\"seed\":$RANDOM}" >/dev/null 2>&1 &
    clients+=($!)
  done
  sleep "0.$((RANDOM % 9))"
  kill -TERM "$server" 2>/dev/null
  wait "${clients[@]}"
  wait "$server"
  local code=$?
  server=
  [ "$code" = 143 ] && code=0
  return "$code"
}

kinds=(bench run serve one_core)
command -v taskset >/dev/null || kinds=(bench run serve)
command -v curl >/dev/null || { echo "no curl here: serve is left out"; kinds=("${kinds[@]/serve/run}"); }

started=$SECONDS
for ((i = 1; i <= runs; i++)); do
  kind=${kinds[$((i % ${#kinds[@]}))]}
  "$kind"
  code=$?
  done_of[$kind]=$((${done_of[$kind]:-0} + 1))
  if [ "$code" != 0 ] || grep -qE 'Fatal error in|Native stack trace|a compute thread was lost' "$out"; then
    failures=$((failures + 1))
    failed_of[$kind]=$((${failed_of[$kind]:-0} + 1))
    cp "$out" "$kept/$i-$kind-$code"
    echo "run $i, $kind: ended with $code; its output is in $kept/$i-$kind-$code"
  fi
  [ -t 1 ] && printf '\r%d of %d, %d failed, %d s ' "$i" "$runs" "$failures" "$((SECONDS - started))"
done
[ -t 1 ] && echo
for kind in "${!done_of[@]}"; do echo "$kind: ${done_of[$kind]} runs, ${failed_of[$kind]:-0} failed"; done
echo "$runs runs, $failures failed, $((SECONDS - started)) s, load $(cut -d' ' -f1-3 /proc/loadavg 2>/dev/null)"
[ "$failures" = 0 ]
