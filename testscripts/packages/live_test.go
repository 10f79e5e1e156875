package packages

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// machine is a systemd with all of its namespaces, booted by the script "boot".
type machine struct {
	t   *testing.T
	pid string // of its first process
}

// packageDatabase copies what dpkg knows of this machine, when no program changes it: another test may
// install something at any time.
func packageDatabase(t *testing.T) string {
	t.Helper()
	held, err := os.OpenFile("/var/lib/dpkg/lock-frontend", os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.FcntlFlock(held.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "dpkg")
	run(t, "cp", "-a", "/var/lib/dpkg", dir)
	return dir
}

// boot starts a machine which sees shared as /run/shared.
func boot(t *testing.T, shared string) machine {
	t.Helper()
	harness.Programs(t, "systemctl=systemd", "logrotate", "nsenter=util-linux", "pgrep=procps")
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	c := exec.Command(filepath.Join(harness.Root(), "testscripts/packages/boot"), dir, shared, packageDatabase(t))
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
		if cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup")); err == nil {
			within(t, "the control group is empty", func() bool {
				return exec.Command("find", strings.TrimSpace(string(cgroup)), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run() == nil
			})
		}
	})
	m := machine{t: t}
	within(t, "systemd is up", func() bool {
		select {
		case err := <-ended:
			ended <- err
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("boot: %v\n%s", err, said)
		default:
		}
		pid, err := exec.Command("pgrep", "--parent", fmt.Sprint(c.Process.Pid)).Output()
		m.pid = strings.TrimSpace(string(pid))
		if err != nil || m.pid == "" {
			return false
		}
		out, _ := m.command("systemctl", "is-system-running").Output()
		return strings.TrimSpace(string(out)) == "running"
	})
	return m
}

// command is a command that runs on the machine.
func (m machine) command(args ...string) *exec.Cmd {
	c := exec.Command("nsenter", append([]string{"--target=" + m.pid, "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--"}, args...)...)
	c.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "TERM=dumb",
		"SYSTEMD_PAGER=", "SYSTEMD_COLORS=0", "DEBIAN_FRONTEND=noninteractive",
	}
	c.Dir = "/"
	return c
}

func (m machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.command(args...).CombinedOutput()
	if err != nil {
		journal, _ := m.command("journalctl", "--no-hostname", "-n", "30").Output()
		m.t.Fatalf("%s: %v\n%s\njournal:\n%s", strings.Join(args, " "), err, out, journal)
	}
	return strings.TrimSpace(string(out))
}

func (m machine) sh(script string) string {
	m.t.Helper()
	return m.run("sh", "-ec", script)
}

// is has systemctl say something of a unit.
func (m machine) is(unit, property, want string) {
	m.t.Helper()
	if got := m.run("systemctl", "show", "--value", "--property="+property, unit); got != want {
		m.t.Errorf("%s of %s: %q, want %q\n%s", property, unit, got, want, m.sh("journalctl --no-hostname -n 20"))
	}
}

// submit runs ponos-submit as the user of the units.
func (m machine) submit(args ...string) string {
	m.t.Helper()
	id, _, _ := strings.Cut(m.user(append([]string{"ponos-submit"}, args...)...), "\n") // what follows is on standard error
	return id
}

// user runs a tool as the user of the units.
func (m machine) user(args ...string) string {
	m.t.Helper()
	return m.run(append([]string{
		"setpriv", "--reuid=ponos", "--regid=ponos", "--init-groups", "env", "HOME=/var/lib/ponos/main", "PONOS_CONFIG=/etc/ponos/main.yaml",
	}, args...)...)
}

func (m machine) state(task, want string) func() bool {
	return func() bool {
		m.t.Helper()
		return regexp.MustCompile(`(?m)^` + task + `  \S+ +` + want + `\b`).MatchString(m.user("ponos-list", "--long"))
	}
}

// patience bounds each wait for something to happen, on a machine that is busy.
const patience = harness.Patience

func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// The task of the agent that runs while everything around it changes: it tells what
// it may do, and ends when it is told to.
const probe = `
exec 2>&1
grep -E '^(NoNewPrivs|CapEff|CapBnd|Seccomp):' /proc/self/status
for file in /etc/x /usr/x /var/lib/x /home/x /run/x /boot/x /var/log/x; do touch $file 2>/dev/null && echo "wrote $file"; done
unshare --user true && echo unshared
ls -d /proc/1 2>/dev/null
ls /dev/kmsg /dev/mem 2>/dev/null
echo kept >/tmp/mine; echo kept >/var/tmp/mine2; echo kept >/dev/shm/mine
mkfifo /var/lib/ponos/main/go
read -r go </var/lib/ponos/main/go
cat /tmp/mine /var/tmp/mine2 /dev/shm/mine
echo new >/tmp/other && cat /tmp/other
`

const probeSaid = `CapEff: 0000000000000000
CapBnd: 0000000000000000
NoNewPrivs: 1
Seccomp: 2
unshare: unshare failed: Operation not permitted
kept
kept
kept
new`

const agentYAML = `queue: spool:/var/lib/ponos/main/spool
mode: local
data_dir: /var/lib/ponos/main
logging:
  path: /var/log/ponos/main/agent.log
`

// live has apt install the packages on a machine with a running systemd, where
// the units do what they are for until the packages are purged.
func live(t *testing.T, whole string) {
	t.Helper()
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	later := dist(t, harness.Root(), "v1.0.1", "ONLY=ponos-poll ponos-stop ponos-start ponos-submit ponos-list", "KINDS=deb")
	for _, out := range []string{whole, later} {
		run(t, "cp", only(t, out+"/ponos_*.deb"), only(t, out+"/ponos-spank_*.deb"), shared)
	}
	if err := os.WriteFile(filepath.Join(shared, "main.yaml"), []byte(agentYAML), 0o644); err != nil {
		t.Fatal(err)
	}
	m := boot(t, shared)

	// Installed by apt, whose solver finds everything that is needed here, but not
	// for a Slurm of another version.
	spank := "/run/shared/" + filepath.Base(only(t, shared+"/ponos-spank_1.0.0*"))
	m.run("apt-get", "-q", "-y", "install", "/run/shared/ponos_1.0.0_amd64.deb", spank)
	if said := m.run("dpkg", "--verify", "ponos", "ponos-spank"); said != "" {
		t.Errorf("dpkg --verify: %s", said)
	}
	m.run("dpkg", "--audit")
	m.sh(`sed '/^Package: slurm-client$/,/^$/s/^Version: .*/Version: 99.05.1-1/' /var/lib/dpkg/status >/tmp/status`)
	out, err := m.command("apt-get", "-s", "-o", "Dir::State::status=/tmp/status", "-o", "Dir::State::lists=/tmp/none", "reinstall", spank).CombinedOutput()
	if err == nil || !regexp.MustCompile(`Depends: slurm-client \(< \d\d\.\d\d\)`).Match(out) {
		t.Errorf("a plugin for another version of Slurm: %v\n%s", err, out)
	}
	if got := m.run("getent", "passwd", "ponos"); !strings.HasSuffix(got, ":Ponos agent:/var/lib/ponos:/usr/sbin/nologin") {
		t.Errorf("the user: %s", got)
	}

	// No configuration, or a wrong one: said once, and not tried again.
	if out, err := m.command("systemctl", "start", "ponos@none").CombinedOutput(); err == nil {
		t.Errorf("an agent without a configuration: %s", out)
	}
	m.sh("echo 'mode: nonsense' >/etc/ponos/wrong.yaml; systemctl start ponos@wrong")
	within(t, "the agent with a wrong configuration fails", func() bool {
		return m.run("systemctl", "show", "--value", "--property=ActiveState", "ponos@wrong") == "failed"
	})
	m.is("ponos@wrong", "NRestarts", "0")
	m.is("ponos@wrong", "ExecMainStatus", "2")

	// An agent starts, and starts a task.
	m.sh("install -m 644 /run/shared/main.yaml /etc/ponos/main.yaml; systemctl enable -q --now ponos@main")
	within(t, "the agent makes its spool", func() bool { return m.command("test", "-d", "/var/lib/ponos/main/spool/new").Run() == nil })
	task := m.submit("--slug=probe", "--", "sh", "-c", probe)
	m.sh("systemctl restart ponos@main") // which asks for tasks at once
	within(t, "the task runs", func() bool { return m.command("test", "-e", "/var/lib/ponos/main/go").Run() == nil })
	running := m.run("pgrep", "-u", "ponos", "-f", "^sh -c.*NoNewPrivs")
	still := func() {
		t.Helper()
		if now := m.run("pgrep", "-u", "ponos", "-f", "^sh -c.*NoNewPrivs"); now != running {
			t.Errorf("the task was process %s, now %s", running, now)
		}
	}

	// It neither ends nor starts again with the agent, whatever is done to that.
	m.sh(`systemctl restart ponos@main; kill -KILL "$(systemctl show --value --property=MainPID ponos@main)"`)
	still()
	m.sh("systemctl restart ponos@main; systemctl is-active -q ponos@main")
	before := m.run("systemctl", "show", "--value", "--property=MainPID", "ponos@main")
	m.sh("echo '# mine' >>/etc/cron.d/ponos; apt-get -q -y install /run/shared/ponos_1.0.1_amd64.deb /run/shared/ponos-spank_1.0.1*.deb")
	after := m.run("systemctl", "show", "--value", "--property=MainPID", "ponos@main")
	if got := m.run("bash", "-c", "exec -a ponos-poll /proc/"+after+"/exe --version"); after == before || got != "ponos-poll v1.0.1" {
		t.Errorf("after the upgrade, the agent is %s, was %s: %s", after, before, got)
	}
	m.sh("grep -q '# mine' /etc/cron.d/ponos")
	still()

	// A turn of the timer in its place, without the minute after the boot. It has no other turn, which
	// would fail beside an agent.
	m.sh("systemctl disable -q --now ponos@main")
	within(t, "no ponos-poll runs", func() bool { return m.command("pgrep", "-u", "ponos", "ponos-poll").Run() != nil })
	m.sh("mkdir /run/systemd/system/ponos-poll@.timer.d; printf '[Timer]\nOnBootSec=\nOnBootSec=1s\n' >/run/systemd/system/ponos-poll@.timer.d/soon.conf; systemctl enable -q --now ponos-poll@main.timer")
	within(t, "the timer has its turn", func() bool {
		return m.run("systemctl", "show", "--value", "--property=LastTriggerUSec", "ponos-poll@main.timer") != ""
	})
	// systemd takes six starts within 10 seconds for a fault.
	turn := func() { m.sh("systemctl reset-failed ponos-poll@main; systemctl start ponos-poll@main") }
	turn()
	still()
	m.sh("echo go >/var/lib/ponos/main/go")
	within(t, "turns find the end of the task", func() bool {
		turn()
		return m.state(task, "completed")()
	})
	if said := strings.ReplaceAll(m.sh("cat /var/lib/ponos/main/state/done/*/job.out"), ":\t", ": "); said != probeSaid {
		t.Errorf("the task said\n%s", said)
	}
	journal := m.sh("journalctl -o cat -t ponos@main")
	if strings.Count(journal, `{"event":"started","id":"`+task+`"`) != 1 || strings.Contains(journal, "error") {
		t.Errorf("the journal has\n%s", journal)
	}

	// Logs are rotated, and the agent goes on with them. /tmp is emptied at boot.
	m.sh("logrotate --force /etc/logrotate.d/ponos; test -s /var/log/ponos/main/agent.log.1.gz; ! test -s /var/log/ponos/main/agent.log")
	second := m.submit("--slug=second", "--", "true")
	within(t, "a second task is done", func() bool {
		turn()
		return m.state(second, "completed")()
	})
	m.sh("grep -q " + second + " /var/log/ponos/main/agent.log")
	m.sh("systemd-tmpfiles --clean ponos.conf; test -e /var/lib/ponos/main/tmp/mine; systemd-tmpfiles --remove --boot ponos.conf; ! test -e /var/lib/ponos/main/tmp/mine")

	// An agent for a user, as the tutorial has it; there is no Slurm here.
	blocks := harness.Blocks(t, "ponos-tutorial.7.md", "THE AGENT FOR A SITE")
	m.sh("useradd --create-home --shell /bin/bash visitor; useradd --create-home --shell /bin/bash other") // this machine may have an alice
	m.sh(blocks[0])
	m.sh(`sed -i -e 's/^mode: slurm$/mode: local/' -e '/^slurm:$/,/^$/d' /etc/ponos/ponos.yaml`)
	m.sh(strings.ReplaceAll(blocks[1], "alice", "visitor"))
	within(t, "the agent makes its spool", func() bool { return m.command("test", "-d", "/home/visitor/ponos/spool/new").Run() == nil })
	// It records where its directories are, as the tools of the user do, and an empty mount point is an error.
	m.sh("grep -q ' /home/visitor/ponos/data$' /home/visitor/.local/state/ponos/places/*")
	m.sh("systemctl stop ponos@visitor; mv /home/visitor/ponos /home/visitor/away; runuser -u visitor -- mkdir /home/visitor/ponos; systemctl start ponos@visitor")
	within(t, "the agent reports the missing spool", func() bool {
		return strings.Contains(m.sh("journalctl -o cat -t ponos@visitor"), `spool "/home/visitor/ponos/spool": it does not exist or is not mounted`)
	})
	m.sh("systemctl stop ponos@visitor; rmdir /home/visitor/ponos; mv /home/visitor/away /home/visitor/ponos; systemctl start ponos@visitor")
	if said := m.run("runuser", "--login", "visitor", "-c", blocks[2]); !strings.Contains(said, "\n"+m.run("hostname")+"\n") {
		t.Errorf("the task of the visitor said %s", said)
	}
	// Tasks have the caches of the user, and no more of the home directory.
	m.run("runuser", "--login", "visitor", "-c", "ponos-submit --wait -- sh -c 'mkdir ~/.cache/pip && ! mkdir ~/.ssh'")
	// The agent runs as the user; what belongs to the user, others cannot read or change.
	if owner := m.sh(`ps -o user= -p "$(systemctl show --value --property=MainPID ponos@visitor)"; stat -c '%U %a' /home/visitor/ponos /home/visitor/ponos/spool /home/visitor/ponos/data/state`); owner != "visitor\nvisitor 700\nvisitor 700\nvisitor 700" {
		t.Errorf("owners and modes:\n%s", owner)
	}
	for user, who := range map[string]string{"other": "\"/home/visitor/ponos\" belongs to user visitor", "root": "and this is user root"} {
		out, err := m.command("runuser", "-u", user, "--", "ponos-submit", "--spool", "/home/visitor/ponos/spool", "--", "true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), who) {
			t.Errorf("%s submits to the spool of visitor: %v\n%s", user, err, out)
		}
	}
	m.sh("runuser --login other -c 'ponos-submit --spool ~/spool -- true'")
	m.sh("systemctl disable -q --now ponos@visitor")

	// A home directory elsewhere is in all lines of the drop-in.
	m.sh("useradd --create-home --home-dir /srv/roamer roamer")
	m.sh(strings.ReplaceAll(blocks[1], "alice", "roamer"))
	within(t, "the agent records its directories", func() bool {
		return m.command("sh", "-c", "grep -q ' /srv/roamer/ponos/data$' /srv/roamer/.local/state/ponos/places/*").Run() == nil
	})
	m.sh("systemctl disable -q --now ponos@roamer")

	// Removed: nothing runs, what was configured stays, until it is purged.
	m.sh("systemctl start ponos@main; apt-get -q -y remove ponos; ! pgrep -u ponos .")
	m.is("ponos-poll@main.timer", "ActiveState", "inactive")
	m.sh("test -e /etc/cron.d/ponos; test -L /etc/systemd/system/timers.target.wants/ponos-poll@main.timer; ! test -e /usr/lib/ponos/ponos.so")
	m.sh("apt-get -q -y purge ponos; ! test -e /etc/cron.d/ponos; ! test -L /etc/systemd/system/timers.target.wants/ponos-poll@main.timer; test -e /etc/ponos/main.yaml; test -d /var/lib/ponos/main/state")
	var failed bytes.Buffer
	for line := range strings.Lines(m.sh("systemctl list-units --failed --plain --no-legend 'ponos*'")) {
		if !strings.HasPrefix(line, "ponos@wrong.service ") {
			failed.WriteString(line)
		}
	}
	if failed.Len() > 0 {
		t.Errorf("failed units:\n%s\n%s", failed.String(), m.sh("journalctl --no-hostname -n 30"))
	}
}
