package rented

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
)

// Variables that the wrapper reads, and removes from the environment of the task.
const (
	nonceEnv  = "PONOS_NONCE"
	limitEnv  = "PONOS_MAX_RUNTIME" // seconds
	labelEnv  = "PONOS_LABEL"
	graceEnv  = "PONOS_GRACE"      // seconds until the instance is destroyed
	endEnv    = "PONOS_END"        // not empty: it is not stopped before that, if its label has the end
	switchEnv = "PONOS_SWITCH"     // address of the program vast-switch
	sumEnv    = "PONOS_SWITCH_SUM" // its SHA-256
	marker    = "PONOS-EXIT"
)

// The variables that tell a task, and the commands that load and save its checkpoints, where those
// are: in the store, and in the container.
const (
	storeEnv       = "PONOS_CHECKPOINT_STORE"
	checkpointsEnv = "PONOS_CHECKPOINT_DIR"
	checkpointsDir = "/data/checkpoints"
)

// The variables that hold these commands for the wrapper.
const (
	loadEnv     = "PONOS_CHECKPOINT_LOAD"
	saveEnv     = "PONOS_CHECKPOINT_SAVE"
	intervalEnv = "PONOS_CHECKPOINT_INTERVAL" // seconds
)

// wrapper runs the task's command, which is its arguments. Vast.ai reports no exit code and restarts
// a container that has ended, so the wrapper reports the code twice: after a nonce in the log, and in
// the label of the instance, which lists show. It also records it in a file for its next start. Then
// it leaves the instance to the agent for the grace period, and destroys it with the instance's own
// key, after which only the bill has the label. If the label cannot be written, or if the
// configuration says so, it stops the instance at once instead, which keeps the log. A stopped
// container runs nothing and destroys nothing. If stopping has no effect for the grace period, it
// tries to write the label again and destroys the instance. A start that finds traces of another
// start but no end does not run the task a second time. The task sees neither the nonce nor the key:
// with the key, a worker would stop the instance before its exit code is reported.
//
// With a store for checkpoints, the task begins after they were loaded. They are saved at intervals
// and at its end, which waits ten minutes at most for that. If loading has failed, nothing is saved:
// an empty directory must not replace a task's work.
//
// Requests are made by curl, by python3, or by the program vast-switch. That is downloaded if the
// others are missing or cannot make a request: an image may have curl without CA certificates. None of
// them follows a redirect with the key. A download without certificates is checked against its hash.
// Without any of the three, nothing could be stopped from within, so the task is not run.
const wrapper = vastai.Self + ` n=$PONOS_NONCE t=${PONOS_MAX_RUNTIME:-86400} l=$PONOS_LABEL g=${PONOS_GRACE:-600} y=$PONOS_END w=$PONOS_SWITCH s=$PONOS_SWITCH_SUM a=$PONOS_CHECKPOINT_LOAD b=$PONOS_CHECKPOINT_SAVE q=${PONOS_CHECKPOINT_INTERVAL:-600}
f=${TMPDIR:-/tmp}/.ponos-$n
unset PONOS_NONCE PONOS_MAX_RUNTIME PONOS_LABEL PONOS_GRACE PONOS_END PONOS_SWITCH PONOS_SWITCH_SUM PONOS_CHECKPOINT_LOAD PONOS_CHECKPOINT_SAVE PONOS_CHECKPOINT_INTERVAL ` + vastai.SelfVariables + `
has() { command -v "$1" >/dev/null; }
ask() {
 { has curl && printf 'header = "Authorization: Bearer %s"\n' "$k" | curl -fsS -m 20 -K - -X "$1" -H "Content-Type: application/json" -d "$2" "$u"; } ||
 { has python3 && K=$k python3 -I -c 'import os,sys,urllib.request as r
r.HTTPRedirectHandler.redirect_request=lambda *a:None
_,m,u,b=sys.argv
r.urlopen(r.Request(u,b.encode(),{"Authorization":"Bearer "+os.getenv("K"),"Content-Type":"application/json"},method=m),None,20)' "$1" "$u" "$2"; } ||
 K=$k "$f.x" "$1" "$u" "$2"
} >/dev/null 2>&1
arm() {
 ask GET && return
 [ "$w" ] && { wget -q -O "$f.x" "$w" || curl -fsSkL -o "$f.x" "$w"; } && echo "$s  $f.x" | sha256sum -c - && chmod 700 "$f.x" && "$f.x" && return
 has python3 || { has curl && { curl -s -m 20 "$u"; e=$?; [ $e != 60 ] && [ $e != 77 ]; }; }
}
tell() { [ "$l" ] && ask PUT ` + vastai.SelfTell + `; }
halt() {
 printf '\nPONOS-EXIT %s %s\n' "$n" "$1"
 e=0
 until tell $1; do
  e=$((e+1))
  [ $e -lt 2 ] || { y=; break; }
  sleep 2
 done
 e=0
 while sleep 1; do
  [ $e -ge "$g" ] && { y=; tell $1; ask DELETE '{}'; } || [ "$y" ] || ask PUT ` + vastai.SelfStop + `
  sleep 9
  e=$((e+10))
 done
}
keep() { [ ! -e "$f.in" ] || sh -c "$b" || echo '[the checkpoints could not be saved]'; }
[ -e "$f.end" ] && halt "$(cat "$f.end")"
arm >/dev/null 2>&1 || halt unarmed
(set -C; : >"$f") 2>/dev/null || { [ -e "$f" ] && halt lost; halt nowhere; }
(if [ "$b" ]; then mkdir -p "$PONOS_CHECKPOINT_DIR" && sh -c "$a" && : >"$f.in" || exit 1; fi; exec "$@") & p=$!
[ "$b" ] && (e=0; while kill -0 $p 2>/dev/null; do sleep 1; e=$((e+1)); [ $e -ge "$q" ] && keep && e=0; done; keep; : >"$f.out") &
(sleep "$t"; echo late >"$f.late"; kill -TERM $p; sleep 20; kill -KILL $p) >/dev/null 2>&1 & d=$!
trap 'kill -TERM $p' TERM INT HUP
wait $p; c=$?
while kill -0 $p 2>/dev/null; do wait $p; c=$?; done
kill $d 2>/dev/null
[ "$b" ] && [ ! -e "$f.in" ] && c=unloaded
[ -e "$f.late" ] && c=late
e=0; while [ "$b" ] && [ ! -e "$f.out" ] && [ $e -lt 600 ]; do sleep 1; e=$((e+1)); done
echo $c >"$f.end"
halt $c
`

// arguments returns the arguments of /bin/sh.
func arguments(command []string) []string {
	return append([]string{"-c", wrapper, "ponos"}, command...)
}

// split removes the wrapper's lines from a log and returns the content of the last one.
func split(text []byte, nonce string) (lines [][]byte, end *life.End) {
	prefix := []byte(marker + " " + nonce + " ")
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, prefix); ok && nonce != "" {
			if said, known := life.Word(strings.TrimSpace(string(rest))); known {
				end = &said
			}
			// The line break before the marker also belongs to the wrapper.
			if n := len(lines); n > 0 && string(lines[n-1]) == "\n" {
				lines = lines[:n-1]
			}
			continue
		}
		lines = append(lines, line)
	}
	return lines, end
}

// merge returns what is new in a log of which only the end is shown. Known are the last lines of the
// existing output. Joined says that they belong together: otherwise lines may be missing between them.
func merge(known, shown [][]byte) (more [][]byte, joined bool) {
	if len(known) == 0 {
		return shown, false
	}
	for from := range min(2, len(shown)) { // its first line may be truncated
		part := shown[from:]
		n, contained := overlap(known, part)
		switch {
		case contained:
			return nil, true
		case n > 0:
			return part[n:], true
		}
	}
	return shown, len(shown) == 0
}

// missing is the line that replaces lines that could not be read.
const missing = "[some lines are missing here]\n"

// overlap returns how many lines at the end of known are those at the beginning of shown, and whether
// known contains all of shown. It takes time in proportion to both (Knuth, Morris and Pratt).
func overlap(known, shown [][]byte) (n int, contained bool) {
	if len(shown) == 0 {
		return 0, true
	}
	back := make([]int, len(shown)) // the longest shorter beginning that ends at each line
	step := func(n int, line []byte) int {
		for n > 0 && (n == len(shown) || !bytes.Equal(shown[n], line)) {
			n = back[n-1]
		}
		if bytes.Equal(shown[n], line) {
			n++
		}
		return n
	}
	for k := 1; k < len(shown); k++ {
		back[k] = step(back[k-1], shown[k])
	}
	for _, line := range known {
		if n = step(n, line); n == len(shown) {
			contained = true
		}
	}
	return n, contained
}

func dollars(f float64) string { return fmt.Sprintf("$%.4f", f) }

func hours(d time.Duration) float64 { return max(0, d.Hours()) }
