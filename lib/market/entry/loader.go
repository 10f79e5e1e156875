package entry

// Loader is the shell script with which a container begins: it fetches the program, checks its sum, and becomes it. With
// a sum that is known before, no certificate is needed. Without the program the task is not run: the log says so, and, where
// there are curl or python3 and certificates, the label, and the instance is destroyed when the agent has stayed away.
const Loader = `f=${TMPDIR:-/tmp}/.ponos-entry
case $(uname -m) in aarch64|arm64) u=$PONOS_ENTRY-arm64;; *) u=$PONOS_ENTRY-amd64;; esac
sum() { s=$(sha256sum <"$f") && case " $PONOS_ENTRY_SUMS " in *" ${s%% *} "*) chmod 700 "$f" && "$f" try;; *) false;; esac; }
for t in 1 2 4 8 16; do
 for p in curl wget wgets python3; do
  case $p in
  curl) curl -fsSkL -m 300 -o "$f" "$u";;
  wget) wget -q -O "$f" "$u";;
  wgets) wget -q --no-check-certificate -O "$f" "$u";;
  *) python3 -I -c 'import ssl,sys,urllib.request as r
open(sys.argv[1],"wb").write(r.urlopen(sys.argv[2],None,300,context=ssl._create_unverified_context()).read())' "$f" "$u";;
  esac && sum && exec "$f"
 done
 sleep $t
done
echo "PONOS-EXIT $PONOS_NONCE unarmed"
u=${VAST_URL:-https://console.vast.ai}
u=${u%/}/api/v0/instances/$CONTAINER_ID/
ask() {
 printf 'header="Authorization: Bearer %s"' "$CONTAINER_API_KEY" |
  curl -fsS -m 60 -o /dev/null -K - -X "$1" -H 'Content-Type: application/json' -d "$2" "$u" ||
 python3 -I -c 'import os,sys,urllib.request as r
r.urlopen(r.Request(sys.argv[3],sys.argv[2].encode(),{"Authorization":"Bearer "+os.environ["CONTAINER_API_KEY"],
"Content-Type":"application/json"},method=sys.argv[1]),None,60)' "$1" "$2" "$u"
}
ask PUT "{\"label\":\"$PONOS_LABEL:end=unarmed\"}"
if [ "$PONOS_GRACE" -gt 0 ]; then
 sleep "$PONOS_GRACE"
 ask DELETE "{}"
fi
exec sleep 600
`

// ReleaseURL is where releases are, before their version; ReleaseSums are those of the programs of this release, which
// its build sets. Another build has none.
const ReleaseURL = "https://github.com/ponos-tools/ponos/releases/download/"

// ReleaseSums is set by the build of a release.
var ReleaseSums string

// Architectures are those of the program, as they end its address.
var Architectures = []string{"amd64", "arm64"}

// Programs are those that the loader can use.
var Programs = []string{"sh", "sha256sum", "uname", "chmod", "sleep", "curl", "wget", "python3"}

// Loads reports whether an image with these programs can load the program, and what it lacks else.
func Loads(has func(string) bool) (lacks string, ok bool) {
	if !has("sh") {
		return "it has no shell", false
	}
	if !has("sha256sum") {
		return "it has no sha256sum", false
	}
	for _, name := range Programs[5:] {
		if has(name) {
			return "", true
		}
	}
	return "it has neither curl nor wget nor python3", false
}
