package vast

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The variables that the wrapper reads, and takes away from the task.
const (
	nonceEnv = "PONOS_NONCE"
	limitEnv = "PONOS_MAX_RUNTIME" // seconds
	marker   = "PONOS-EXIT"
)

// checkpointEnv tells a task the place in the store where its checkpoints are kept.
const checkpointEnv = "PONOS_CHECKPOINT_STORE"

// wrapper runs the task's command, which is its arguments. Vast.ai tells no exit
// code and starts what has ended again, so the wrapper prints the code behind a
// nonce, leaves it in a file for its next start, and stops the instance with the
// instance's own key. A start that finds another start's traces but no end does not
// run the task a second time. The task sees neither the nonce nor the key: with the
// key, a worker would stop the instance before its exit code is known.
const wrapper = `n=$PONOS_NONCE i=$CONTAINER_ID k=$CONTAINER_API_KEY t=${PONOS_MAX_RUNTIME:-86400}
u=${VAST_URL:-https://console.vast.ai}/api/v0/instances/$i/ f=${TMPDIR:-/tmp}/.ponos-$n
b='{"state":"stopped"}' a="Authorization: Bearer $k" j="Content-Type: application/json"
unset PONOS_NONCE PONOS_MAX_RUNTIME CONTAINER_ID CONTAINER_API_KEY
halt() {
 printf '\nPONOS-EXIT %s %s\n' "$n" "$1"
 while sleep 1; do
  if command -v curl >/dev/null; then printf 'header = "%s"\n' "$a" | curl -sS -m 20 -K - -X PUT -H "$j" -d "$b" "$u"
  elif command -v python3 >/dev/null; then A=$k U=$u B=$b python3 -c 'import os,urllib.request as r
e=os.environ
r.urlopen(r.Request(e["U"],e["B"].encode(),{"Authorization":"Bearer "+e["A"],"Content-Type":"application/json"},method="PUT"),timeout=20)'
  fi >/dev/null 2>&1
  sleep 30
 done
}
if [ -e "$f.end" ]; then halt "$(cat "$f.end")"; fi
if ! (set -C; : >"$f") 2>/dev/null; then
 if [ -e "$f" ]; then halt lost; else halt nowhere; fi
fi
"$@" & p=$!
(sleep "$t"; echo late >"$f.late"; kill -TERM $p; sleep 20; kill -KILL $p) >/dev/null 2>&1 & d=$!
trap 'kill -TERM $p' TERM INT HUP
wait $p; c=$?
while kill -0 $p 2>/dev/null; do wait $p; c=$?; done
kill $d 2>/dev/null
[ -e "$f.late" ] && c=late
echo $c >"$f.end"
halt $c
`

// arguments are what /bin/sh gets.
func arguments(command []string) []string {
	return append([]string{"-c", wrapper, "ponos"}, command...)
}

// ending is what the wrapper's last line says.
type ending struct {
	code int
	word string // lost, late or nowhere, where there is no code
}

// split takes the wrapper's lines out of a log and returns what the last one says.
func split(text []byte, nonce string) (lines [][]byte, end *ending) {
	prefix := []byte(marker + " " + nonce + " ")
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, prefix); ok && nonce != "" {
			word := strings.TrimSpace(string(rest))
			code, err := strconv.Atoi(word)
			switch {
			case err == nil && code >= 0 && code < 256:
				end = &ending{code: code}
			case word == "lost" || word == "late" || word == "nowhere":
				end = &ending{word: word}
			}
			// The line break before the marker is the wrapper's as well.
			if n := len(lines); n > 0 && string(lines[n-1]) == "\n" {
				lines = lines[:n-1]
			}
			continue
		}
		lines = append(lines, line)
	}
	return lines, end
}

// merge returns what is new in a log of which only the end is shown. Known are the
// last lines of what is there already.
func merge(known, shown [][]byte) [][]byte {
	if len(known) == 0 {
		return shown
	}
	if len(shown) == 0 || contains(known, shown) {
		return nil
	}
	for from := range min(2, len(shown)) { // its first line may have lost its beginning
		part := shown[from:]
		if from > 0 && contains(known, part) {
			return nil
		}
		for n := min(len(known), len(part)); n > 0; n-- {
			if equal(known[len(known)-n:], part[:n]) {
				return part[n:]
			}
		}
	}
	return append([][]byte{[]byte("[some lines are missing here]\n")}, shown...)
}

func equal(a, b [][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func contains(all, part [][]byte) bool {
	for i := 0; i+len(part) <= len(all); i++ {
		if equal(all[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

func dollars(f float64) string { return fmt.Sprintf("$%.4f", f) }

func hours(d time.Duration) float64 { return max(0, d.Hours()) }
