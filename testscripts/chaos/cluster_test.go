package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func (w *world) slurmDir() string { return w.file("slurm") }

// minJobAge is how long slurmctld remembers ended jobs, in seconds: short, so that
// what the agents know of jobs has to come from elsewhere.
const minJobAge = 5

// startCluster starts the cluster, and makes a second configuration by which there
// is no accounting.
func (w *world) startCluster() {
	var err error
	w.cluster, err = harness.Hold(w.slurmDir(), w.port, realPath)
	w.must(err)
	conf := w.slurmConf(true)
	text, err := os.ReadFile(conf)
	w.must(err)
	replaced := strings.Replace(string(text), "MinJobAge=300", fmt.Sprintf("MinJobAge=%d", minJobAge), 1)
	w.must(os.WriteFile(conf, []byte(replaced), 0o644))
	var without strings.Builder
	for line := range strings.Lines(replaced) {
		switch {
		case strings.HasPrefix(line, "AccountingStorageType="):
			without.WriteString("AccountingStorageType=accounting_storage/none\n")
		case strings.HasPrefix(line, "AccountingStorage"):
		default:
			without.WriteString(line)
		}
	}
	if !*accounting { // which shares of users come from
		plain := strings.Replace(without.String(), "PriorityType=priority/multifactor", "PriorityType=priority/basic", 1)
		w.must(os.WriteFile(conf, []byte(plain), 0o644))
	}
	w.must(os.Mkdir(w.file("slurm/etc-without"), 0o755))
	w.must(os.WriteFile(w.slurmConf(false), []byte(without.String()), 0o644))
	w.must(w.killDaemon("slurmctld", syscall.SIGTERM, 20*time.Second))
	w.must(w.startDaemon("slurmctld"))
	w.must(w.answers(2 * time.Minute))
}

func (w *world) slurmConf(accounting bool) string {
	if accounting {
		return w.file("slurm/etc/slurm.conf")
	}
	return w.file("slurm/etc-without/slurm.conf")
}

// slurm runs a command of Slurm itself, without faults.
func (w *world) slurm(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Env = []string{"PATH=" + realPath, "SLURM_CONF=" + w.slurmConf(true), "TZ=UTC", "LC_ALL=C", "HOME=" + w.file("home"), "USER=root"}
	var out, complaints bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %q: %w: %s", name, args, err, strings.TrimSpace(complaints.String()))
	}
	return out.String(), nil
}

// pidOf is the process of a daemon; 0: there is none.
func (w *world) pidOf(daemon string) int {
	b, err := os.ReadFile(w.file("slurm/run", daemon+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.Contains(environ, []byte("PONOS_CLUSTER_DAEMON="+w.slurmDir()+"\x00")) {
		return 0
	}
	return pid
}

func (w *world) signalDaemon(daemon string, signal syscall.Signal) error {
	pid := w.pidOf(daemon)
	if pid == 0 {
		return fmt.Errorf("%s does not run", daemon)
	}
	return syscall.Kill(pid, signal)
}

// killDaemon ends a daemon and waits until it has gone.
func (w *world) killDaemon(daemon string, signal syscall.Signal, patience time.Duration) error {
	pid := w.pidOf(daemon)
	if pid == 0 {
		return fmt.Errorf("%s does not run", daemon)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); w.pidOf(daemon) == pid; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				return err
			}
			deadline = time.Now().Add(patience)
		}
	}
	return nil
}

// startDaemon starts a daemon as testscripts/cluster/up does, until it stays.
func (w *world) startDaemon(daemon string) error {
	env := []string{
		"PATH=" + realPath, "LANG=C", "SLURM_CONF=" + w.slurmConf(true), "PONOS_CLUSTER_DAEMON=" + w.slurmDir(),
		"MYSQL_UNIX_PORT=" + w.file("slurm/mariadb/socket"),
	}
	munge := w.file("slurm/munge")
	var args []string
	name, node, isNode := strings.Cut(daemon, "-")
	switch {
	case name == "munged":
		args = []string{
			"munged", "--force", "--num-threads=10", "--key-file=" + w.file("slurm/etc/munge.key"), "--socket=" + munge + "/socket",
			"--pid-file=" + munge + "/munged.pid", "--log-file=" + munge + "/munged.log", "--seed-file=" + munge + "/seed",
		}
	case name == "slurmdbd":
		args = []string{"setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", "slurmdbd"}
	case isNode:
		args = []string{"unshare", "--uts", "--mount", "--propagation", "slave", "sh", "-c",
			`hostname "$1" && mount --bind "$2/etc/hosts" /etc/hosts && exec slurmd -N "$1"`, "sh", node, w.slurmDir()}
	default:
		args = []string{"slurmctld"}
	}
	var last error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if w.pidOf(daemon) == 0 {
			c := exec.Command("env", append([]string{"-i"}, append(env, args...)...)...)
			c.Dir = "/"
			// What it prints is in its own log.
			if last = c.Run(); last != nil {
				continue
			}
		}
		time.Sleep(100 * time.Millisecond)
		if w.pidOf(daemon) != 0 {
			return nil
		}
	}
	return fmt.Errorf("%s does not start: %w", daemon, last)
}

// answers waits until slurmctld does, and all nodes are at work.
func (w *world) answers(patience time.Duration) error {
	var said string
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		if said, err = w.slurm("sinfo", "-h", "-N", "-o", "%N %T"); err == nil {
			bad := ""
			for line := range strings.Lines(said) {
				node, state, _ := strings.Cut(strings.TrimSpace(line), " ")
				switch state {
				case "idle", "mixed", "allocated", "completing":
				default:
					bad = line
					_, _ = w.slurm("scontrol", "update", "nodename="+node, "state=resume")
				}
			}
			if bad == "" {
				return nil
			}
		}
	}
	return fmt.Errorf("the cluster is not whole: %w %s", err, said)
}

// job is one of a task, or the pilot job of several, whose task is pilotJob.
type job struct{ id, state, partition, task, reason string }

const pilotJob = "pilot"

// jobs are the jobs of tasks, as Slurm itself says.
func (w *world) jobs() ([]job, error) {
	out, err := w.slurm("squeue", "-h", "-r", "-o", "%i|%T|%P|%k|%r")
	if err != nil {
		return nil, err
	}
	var all []job
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 5 {
			continue
		}
		ids := task.Marked(f[3])
		index := 0
		if _, text, isElement := strings.Cut(f[0], "_"); isElement {
			index, _ = strconv.Atoi(text)
		}
		if strings.HasPrefix(f[3], "PONOS_PACK=") {
			all = append(all, job{f[0], f[1], f[2], pilotJob, f[4]})
		}
		if index < len(ids) {
			all = append(all, job{f[0], f[1], f[2], string(ids[index]), f[4]})
		}
	}
	return all, nil
}
