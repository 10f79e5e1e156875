package lfind

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/ponos-tools/ponos/testscripts/captures"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// numbers are what differs between two answers of Slurm that say the same; functions of its library have
// other names in each version.
var numbers = regexp.MustCompile(`\d+-\d+-\d+T[\d:]+|host:\S+:\d+|\bnodes [a-z]+\d|\w*persist_conn\w*|\d+`)

// TestFakesAreTrue holds the programs that stand in for Slurm against the real ones: the same exit status
// and messages for the same arguments, as many columns, and no key that the real ones do not print.
func TestFakesAreTrue(t *testing.T) {
	alice, root := harness.As(t, "alice"), harness.As(t, "root")
	real := alice.Env
	out, _, _ := alice.Run("scontrol", "--version")
	recorded := regexp.MustCompile(`\b22\.05\.`).MatchString(out) // what was recorded is of the same release
	if out, errs, status := root.Run("scontrol", "create", "reservation", "reservationname=held", "starttime=now+10days", "duration=60", "nodes=cpu1", "users=root"); status != 0 {
		t.Fatalf("a reservation: %s%s", out, errs)
	}
	defer root.Run("scontrol", "delete", "reservationname=held")

	state := filepath.Join(alice.Dir, "slurm")
	fill := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(state, 0o777); err != nil {
			t.Fatal(err)
		}
		alice.Write(filepath.Join("slurm", name), text)
	}
	fakes := filepath.Join(harness.Root(), "testscripts/lfind/fakes")
	ask := func(env []string, words ...string) (stdout, stderr string, status int) {
		t.Helper()
		alice.Env = env
		return alice.Run(words...)
	}
	same := func(words ...string) (want, got string) {
		t.Helper()
		want, wantErrs, wantStatus := ask(real, words...)
		wantErrs = strings.Replace(wantErrs, " a using ", " using ", 1) // 26.05 says "to start at TIME a using"
		got, gotErrs, gotStatus := ask(append(slices.Clone(real), "FAKE_SLURM="+state), append([]string{filepath.Join(fakes, words[0])}, words[1:]...)...)
		if wantStatus != gotStatus || numbers.ReplaceAllString(wantErrs, "N") != numbers.ReplaceAllString(gotErrs, "N") {
			t.Errorf("%q: status %d, %s, its fake %d, %s", words, wantStatus, wantErrs, gotStatus, gotErrs)
		}
		return want, got
	}

	recordings := filepath.Join(harness.Root(), "lib/slurm/testdata/22.05.8")
	// What lfind asks, answered by what was recorded; and what is written by hand in the scripts.
	for name, file := range map[string]string{
		"nodes": "show_nodes_oneline.txt", "partitions": "show_partitions_oneline.txt", "reservations": "reservation.txt", "config": "config.txt",
	} {
		text, err := os.ReadFile(filepath.Join(recordings, file))
		if err != nil {
			t.Fatal(err)
		}
		fill(name, string(text))
	}
	if err := os.Chmod(state, 0o777); err != nil { // the fakes note what they are asked
		t.Fatal(err)
	}
	known := map[string][]string{} // keys of the real records, by their first
	for line := range strings.Lines(section(t, "query.txtar", "asked")) {
		words := strings.Fields(strings.ReplaceAll(line, "root", "alice"))
		if words[0] == "sacctmgr" {
			file, table := "qos", "qos"
			switch {
			case slices.Contains(words, "associations"):
				file, table = "associations", "associations-alice"
			case slices.Contains(words, "user"):
				file, table = "user", "user"
			}
			var text strings.Builder
			if err := captures.Replay(&text, filepath.Join(recordings, table+captures.Extension), words[0], words[1:]...); err != nil {
				t.Fatal(err)
			}
			fill(file, text.String())
		}
		want, got := same(words...)
		if words[0] == "sacctmgr" {
			if w, g := columns(want), columns(got); w != g && w > 0 && g > 0 {
				t.Errorf("%s: %d columns, its fake %d", line, w, g)
			}
			continue
		}
		keys := keysOf(want)
		for first, used := range keysOf(got) {
			if known[first] = keys[first]; keys[first] == nil {
				t.Errorf("%s: no record of %s in\n%s", line, first, want)
			}
			for _, key := range used {
				cores := first == "ReservationName" && (key == "NodeName" || key == "CoreIDs") // of one whose cores are chosen
				if recorded && !cores && !slices.Contains(keys[first], key) {
					t.Errorf("%s: the fake prints %s of %s, which Slurm does not:\n%s", line, key, first, want)
				}
			}
		}
	}
	for _, script := range []string{"deadline.txtar", "reserved.txtar", "unknown.txtar"} {
		for first, used := range keysOf(section(t, script, "")) {
			for _, key := range used {
				if recorded && known[first] != nil && !slices.Contains(known[first], key) {
					t.Errorf("%s: %s has no key %s", script, first, key)
				}
			}
		}
	}

	// Jobs: tested, refused, submitted and run.
	fill("starts", "cpu 2126-01-01T00:00:00\n")
	same("sbatch", "--test-only", "--parsable", "--partition=cpu", "--wrap", "true")
	same("sbatch", "--test-only", "--partition=gpu", "--gpus-per-node=9", "--wrap", "true")
	want, got := same("sbatch", "--parsable", "--hold", "--partition=cpu", "--output=/dev/null", "--wrap", "true")
	if numbers.ReplaceAllString(want, "N") != "N\n" || numbers.ReplaceAllString(got, "N") != "N\n" {
		t.Errorf("sbatch prints %q, its fake %q", want, got)
	}
	ask(real, "scancel", strings.TrimSpace(want))
	if want, got = same("srun", "--quiet", "--partition=cpu", "--", "echo", "a b"); want != "a b\n" || got != want {
		t.Errorf("srun prints %q, its fake %q", want, got)
	}

	// Nobody answers: the controller is looked for some seconds.
	gone := away(alice, real)
	for _, words := range [][]string{
		{"scontrol", "--all", "--oneliner", "--details", "show", "node"}, {"sacctmgr", "--noheader", "--parsable", "show", "user", "alice", "format=user"},
	} {
		for _, name := range []string{"nodes", "user"} {
			_ = os.Remove(filepath.Join(state, name))
		}
		real = gone
		same(words...)
	}
}

// away is an environment in which the Slurm of another one does not answer.
func away(s *harness.Someone, env []string) []string {
	s.T.Helper()
	env = slices.Clone(env)
	for i, v := range env {
		conf, ok := strings.CutPrefix(v, "SLURM_CONF=")
		if !ok {
			continue
		}
		text, err := os.ReadFile(conf)
		if err != nil {
			s.T.Fatal(err)
		}
		ports := regexp.MustCompile(`(?m)^(SlurmctldPort|AccountingStoragePort)=.*$`)
		if n := len(ports.FindAll(text, -1)); n != 2 {
			s.T.Fatalf("%s has %d ports", conf, n)
		}
		s.Write("slurm.conf", ports.ReplaceAllString(strings.ReplaceAll(string(text), "\ninclude ", "\ninclude "+filepath.Dir(conf)+"/"), "$1=1"))
		env[i] = "SLURM_CONF=" + filepath.Join(s.Dir, "slurm.conf")
	}
	return env
}

// section returns a file of a script, or all of them.
func section(t *testing.T, script, name string) string {
	t.Helper()
	archive, err := txtar.ParseFile(script)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range archive.Files {
		if name == "" || f.Name == name {
			all.Write(f.Data)
		}
	}
	return all.String()
}

// columns is the number of columns of a text of sacctmgr.
func columns(text string) int {
	line, _, _ := strings.Cut(text, "\n")
	return strings.Count(line, "|")
}

// keysOf returns the keys of KEY=VALUE records, by the first of each record; those of "scontrol show
// config", KEY = VALUE, by "config".
func keysOf(text string) map[string][]string {
	found := map[string][]string{}
	for line := range strings.Lines(text) {
		if key, _, ok := strings.Cut(line, " = "); ok && !strings.Contains(strings.TrimSpace(key), " ") {
			found["config"] = append(found["config"], strings.TrimSpace(key))
			continue
		}
		first := ""
		for _, m := range record.FindAllStringSubmatch(line, -1) {
			if first == "" {
				if first = m[1]; !strings.HasPrefix(line, first+"=") {
					break
				}
			}
			if !slices.Contains(found[first], m[1]) {
				found[first] = append(found[first], m[1])
			}
		}
	}
	return found
}

var record = regexp.MustCompile(`(?:^| )([A-Za-z:]+)=`)
