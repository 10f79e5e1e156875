package agent

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// Errors reach Sentry if there is a DSN, without secrets; and nothing does if there
// is none.
func TestSentry(t *testing.T) {
	var mu sync.Mutex
	var events []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		events = append(events, r.URL.Path+" "+string(b))
		mu.Unlock()
	}))
	defer server.Close()
	dir := t.TempDir()
	poll := func(section string) {
		t.Helper()
		configuration := fmt.Sprintf(config, dir) + "seed: s3cretseed\nmode: slurm\n" + section
		path := filepath.Join(dir, "ponos.yaml")
		if err := os.WriteFile(path, []byte(configuration), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "slurm"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "slurm/squeue.mode"), []byte("down"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("ponos-poll", "-c", path)
		c.Env = append(os.Environ(), "HOME="+dir, "SLURM_CONF="+filepath.Join(dir, "slurm/slurm.conf"),
			"PATH="+filepath.Join(harness.Root(), "testscripts/fakeslurm")+":"+os.Getenv("PATH"))
		if out, err := c.CombinedOutput(); c.ProcessState.ExitCode() != 3 {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	poll("")
	mu.Lock()
	if len(events) != 0 {
		t.Errorf("without a DSN, Sentry got %q", events)
	}
	mu.Unlock()
	poll("sentry: {dsn: 'http://publickey@" + strings.TrimPrefix(server.URL, "http://") + "/7', environment: testing}\n")
	// The tool does not wait for long until Sentry has read what it has sent.
	all := ""
	eventually(t, "Sentry has the error", func() bool {
		mu.Lock()
		defer mu.Unlock()
		all = strings.Join(events, "\n")
		return strings.Contains(all, "Unable to contact slurm controller")
	})
	if !strings.Contains(all, "/api/7/envelope/") || !strings.Contains(all, `"environment":"testing"`) {
		t.Errorf("Sentry got %q", all)
	}
	if strings.Contains(all, "s3cretseed") {
		t.Error("Sentry got the seed")
	}
}

// The programs that stand in for Slurm's print what those print.
func TestFakesAreTrue(t *testing.T) {
	vars := harness.Cluster(t)
	run := func(dir string, env []string, name string, args ...string) (stdout, stderr string) {
		a := ask(dir, env, append([]string{name}, args...)...)
		return a.out, a.errs
	}
	var real []string
	for name, value := range vars {
		real = append(real, name+"="+value)
	}
	work := t.TempDir()
	fakes := filepath.Join(harness.Root(), "testscripts/fakeslurm")
	fake := []string{"SLURM_CONF=" + filepath.Join(work, "slurm.conf")}

	comment := "PONOS_TASK=held-against-the-fake"
	out, errs := run("", real, "sbatch", "--parsable", "--hold", "--chdir=/tmp", "--comment="+comment, "--output=/dev/null", "--wrap", "true")
	id := strings.TrimSpace(out)
	if id == "" {
		t.Fatal(errs)
	}
	defer run("", real, "scancel", id)
	args := []string{"--noheader", "--all", "--local", "--priority", "--noconvert",
		"--Format=JobArrayID:|,State:|,Reason:|,SubmitTime:|,StartTime:|,exit_code:|,DerivedEC:|,RestartCnt:|,Comment:|,WorkDir:|abcdefgh", "--states=all", fmt.Sprintf("--user=%d", os.Getuid())}
	var want string
	for line := range strings.Lines(first(run("", real, "squeue", args...))) {
		if strings.Contains(line, comment) {
			want = line
		}
	}
	if err := os.WriteFile(filepath.Join(work, "queue"), []byte(id+" PENDING "+comment+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(work, "dirs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "dirs", id), []byte("/tmp\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := first(run(fakes, fake, "squeue", args...))
	// Reason and times differ; the columns must not. Exit codes are CODE:SIGNAL from Slurm 23.02 on.
	g, w := strings.Split(got, "|"), strings.Split(strings.ReplaceAll(want, "|0:0", "|0"), "|")
	if len(g) != 11 || len(w) != 11 || g[0] != w[0] || g[1] != w[1] || !slices.Equal(g[5:], w[5:]) {
		t.Errorf("squeue prints\n%qits fake\n%q", want, got)
	}
	ended := strings.TrimSpace(first(run("", real, "sbatch", "--parsable", "--output=/dev/null", "--wrap", "true")))
	eventually(t, "a job ends", func() bool {
		return strings.TrimSpace(first(run("", real, "squeue", "--noheader", "--states=all", "--jobs="+ended, "--format=%T"))) == "COMPLETED"
	})
	cancelled := strings.TrimSpace(first(run("", real, "sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap", "true")))
	run("", real, "scancel", cancelled)
	for name, text := range map[string]string{
		"queue": id + " PENDING " + comment + "\n" + cancelled + " CANCELLED\n" + ended + " COMPLETED\n", "array/rows": id + " PENDING N/A\n",
		"left":   first(run("", real, "squeue", "--noheader", "--jobs="+id, "--format=%L")),
		"nodes":  first(run("", real, "sinfo", "--noheader", "--Node", "--format=%N %R")),
		"shares": first(run("", real, "sshare", "--noheader", "--parsable2", "--all", "--format=Account,User")),
	} {
		executable.Write(t, filepath.Join(work, name), text)
	}
	same := func(env []string, words ...string) {
		t.Helper()
		want, got := ask("", real, words...), ask(fakes, env, words...)
		if words[0] == "sinfo" { // in the order of slurm.conf
			want.out = sorted(want.out)
		}
		if got != want {
			t.Errorf("%s: %+v, its fake %+v", strings.Join(words, " "), want, got)
		}
	}
	for _, words := range []string{
		// What a job asks of itself.
		"squeue --noheader --jobs=ID --format=%L|", "squeue --noheader --states=all --jobs=ID --format=%T|", "squeue --noheader --states=all --jobs=999999 --format=%T|",
		"scontrol requeue ID",
		// Columns, in their order and with what is between them; jobs that have ended, and those that are not there.
		"squeue --noheader --states=all --jobs=ID --format=%e|%k:%i%A", "squeue --noheader --me --jobs=ID --Format=JobID:|,EndTime:|,Comment:|~x,JobArrayID:|~y",
		"squeue --noheader --me --states=all --jobs=CANCELLED --format=%T-%k", "squeue --noheader --me --jobs=CANCELLED --format=%A", "squeue --noheader --jobs=999999 --format=%A",
		"sinfo --noheader --format=%R", "sshare --noheader --parsable2 --format=Account", "sshare --noheader --parsable2 --all --format=User",
		"scancel -- 999999", "scancel -- CANCELLED", "scancel -- ENDED", "squeue --noheader --states=all --jobs=ENDED --format=%T|", "scancel --state=PENDING -- CANCELLED", "scancel --state=PENDING -- 999999", "srun",
	} {
		same(fake, strings.Fields(strings.NewReplacer("=ID", "="+id, " ID", " "+id, "CANCELLED", cancelled, "ENDED", ended).Replace(words))...)
	}
	same([]string{"SLURM_CONF=" + filepath.Join(work, "array/slurm.conf")}, "squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%A|%T|%S|")
	// A step on a node that the job does not have.
	step := []string{"srun", "--nodes=1", "--ntasks=1", "--nodelist=nowhere", "--overlap", "/bin/sh", "-c", "true"}
	outside, number := ask("", real, append([]string{"salloc", "--quiet"}, step...)...), regexp.MustCompile(`job \d+`)
	inside := ask(fakes, append(fake, "SLURM_JOB_ID=7"), step...)
	if outside.errs = number.ReplaceAllString(outside.errs, "job 7"); outside != inside {
		t.Errorf("srun on another node: %+v, its fake %+v", outside, inside)
	}
	// The QoS that every database has; its priority was changed for the tests.
	qos := []string{"--noheader", "--parsable", "show", "qos", "format=name,flags,preemptmode,gracetime,usagefactor,maxwall"}
	listed, _ := run("", real, "sacctmgr", qos...)
	if got := first(run(fakes, fake, "sacctmgr", qos...)); !strings.HasPrefix(got, "normal|") || !strings.Contains("\n"+listed, "\n"+got) {
		t.Errorf("sacctmgr prints\n%sits fake\n%s", listed, got)
	}
	fixed := strings.TrimSpace(first(run("", real, "sbatch", "--parsable", "--no-requeue", "--output=/dev/null", "--wrap", "sleep 1000")))
	defer run("", real, "scancel", fixed)
	eventually(t, "a job runs", func() bool {
		return strings.TrimSpace(first(run("", real, "squeue", "--noheader", "--states=all", "--jobs="+fixed, "--format=%T"))) == "RUNNING"
	})
	if err := os.WriteFile(filepath.Join(work, "requeue.mode"), []byte("refuse"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, want = run("", real, "scontrol", "requeue", fixed)
	if _, got = run(fakes, fake, "scontrol", "requeue", fixed); got != want || want == "" {
		t.Errorf("scontrol requeue of a job that is not to be requeued prints %q, its fake %q", want, got)
	}
	if err := os.WriteFile(filepath.Join(work, "sbatch.mode"), []byte("reject"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(work, "job.sh")
	executable.Write(t, script, "#!/bin/sh\n")
	refused := []string{"--parsable", "--partition=cpu", script}
	_, got = run(fakes, fake, "sbatch", refused...)
	refused[1] = "--partition=nowhere"
	_, want = run("", real, "sbatch", refused...)
	if strings.ReplaceAll(want, "nowhere", "cpu") != got {
		t.Errorf("sbatch says\n%sits fake\n%s", want, got)
	}
	// Debian's packages call it slurm-wlm, all others slurm; a candidate has a suffix.
	version := regexp.MustCompile(`^slurm(-wlm)? \d\d\.\d\d\.\d+(-\w+)?\n$`)
	for _, name := range []string{"scontrol", "squeue", "sacct", "sbatch"} {
		if want, got := first(run("", real, name, "--version")), first(run(fakes, fake, name, "--version")); !version.MatchString(want) || !version.MatchString(got) {
			t.Errorf("%s --version prints %q, its fake %q", name, want, got)
		}
	}
	sacct := []string{"--noheader", "--parsable", "--delimiter=|abcdefgh", "--format=JobID,State,ExitCode,Submit,End,Comment,JobName", "--allusers", "--jobs=" + id}
	if err := os.WriteFile(filepath.Join(work, "accounts"), []byte(id+"|PENDING|0:0|NOW|Unknown||wrap\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "accounting has a job", func() bool { // it lags
		want = first(run("", real, "sacct", sacct...))
		return want != ""
	})
	got = first(run(fakes, fake, "sacct", sacct...))
	begin := id + "|abcdefghPENDING|abcdefgh0:0|abcdefgh"
	if strings.Count(want, "|abcdefgh") != strings.Count(got, "|abcdefgh") || !strings.HasPrefix(got, begin) || !strings.HasPrefix(want, begin) {
		t.Errorf("sacct prints %q, its fake %q", want, got)
	}
}

// answer is what a program prints and its exit status.
type answer struct {
	out, errs string
	status    int
}

// ask runs a program of a directory, or of PATH.
func ask(dir string, env []string, words ...string) (a answer) {
	c := exec.Command(words[0], words[1:]...)
	if dir != "" {
		c = exec.Command(filepath.Join(dir, words[0]), words[1:]...)
	}
	c.Env = append(os.Environ(), env...)
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	_ = c.Run() // failures are compared
	return answer{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// sorted has the lines of a text in their order.
func sorted(text string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	return strings.Join(slices.Sorted(slices.Values(lines)), "")
}

func first(stdout, _ string) string { return stdout }

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	if !harness.Wait(is) {
		t.Fatalf("not within %v: %s", harness.Patience, what)
	}
}
