package tasklist

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// pipeline is what starts an agent.
const pipeline = "ponos-poll --every 10s | ponos-stop | ponos-start"

// Start says how the agent of the configuration that a command line names is started: as a
// job of Slurm, by a unit of systemd, or in a shell. The spool is "" or that of the command
// line, of whose agent nothing is known.
func Start(configFile, spoolDir string) string {
	if spoolDir != "" {
		return pipeline
	}
	cfg, err := assembly.Configuration(configFile)
	if err != nil {
		return pipeline
	}
	if assembly.HasDaemon(cfg) {
		setup := "ponos-setup"
		if configFile != "" {
			setup += " --config " + shell.Quote(configFile)
		}
		return setup + " submits it as a job of Slurm"
	}
	if path, err := config.Expand("~/.config/systemd/user/" + userTimer); err == nil && exists(path) {
		return "systemctl --user enable --now " + userTimer
	}
	if dir, file := filepath.Split(cfg.Path); filepath.Clean(dir) == unitConfigs && exists(unitFile) {
		return "systemctl enable --now ponos@" + strings.TrimSuffix(file, ".yaml")
	}
	return pipeline
}

// What ponos(7) calls the timer of a user, and what the packages install.
const (
	userTimer   = "ponos.timer"
	unitConfigs = "/etc/ponos"
	unitFile    = "/usr/lib/systemd/system/ponos@.service"
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Unattended is a warning if tasks wait for an agent that takes no turns, or nil. Agents
// are those that have taken the tasks, once for each task; "" stands for a task that none
// has taken: any agent will do for it, and for the others only their own. How one is started
// is asked for a hint.
func Unattended(s queue.Client, start func() string, agents ...string) error {
	beats, err := s.Agents()
	if err != nil {
		return nil // problems with the spool are reported elsewhere
	}
	now, alive := clock.Now(), false
	var last queue.Beat
	by := make(map[string]queue.Beat, len(beats))
	for _, b := range beats {
		alive = alive || !b.Late(now)
		by[b.Agent] = b
		if b.Seen.After(last.Seen) {
			last = b
		}
	}
	count := map[string]int{}
	for _, a := range agents {
		if !alive && (a == "" || a == last.Agent) {
			a = ""
		} else if b, ok := by[a]; a == "" || ok && !b.Late(now) {
			continue
		}
		count[a]++
	}
	var warnings []error
	for _, agent := range slices.Sorted(maps.Keys(count)) {
		b := by[agent]
		switch {
		case agent == "" && last.Seen.IsZero():
			err = fault.Hint(errors.New("warning: no agent has taken a turn in this spool"), "start it: "+start())
		case agent == "" && last.Ended:
			err = fault.Hint(
				fmt.Errorf("warning: no agent runs: the last one ended at %s", queue.Moment(last.Seen, now)), "start it: "+start())
		case agent == "":
			err = fault.Hint(
				fmt.Errorf("warning: no agent has taken a turn since %s (%s on host %s)",
					queue.Moment(last.Seen, now), task.Clean(last.Agent), task.Clean(last.Host)),
				"start it: "+start())
		case b.Seen.IsZero():
			err = fmt.Errorf("warning: agent %s, which has %s, has never taken a turn", task.Clean(agent), tasks(count[agent]))
		default:
			err = fault.Hint(
				fmt.Errorf("warning: agent %s on host %s, which has %s, has not taken a turn since %s",
					task.Clean(agent), task.Clean(b.Host), tasks(count[agent]), queue.Moment(b.Seen, now)),
				fmt.Sprintf("start it there, with the configuration whose data_dir is %q: %s", task.Clean(b.Dir), pipeline))
		}
		warnings = append(warnings, err)
	}
	return errors.Join(warnings...)
}

// Agents are the agents of those tasks that are not over, for Unattended. Tasks that were submitted
// within the last time recent are left out; 0: none are.
func Agents(all []queue.Summary, recent time.Duration) (agents []string) {
	for _, s := range all {
		if !s.State.Final() && (recent == 0 || clock.Since(s.Created) > recent) {
			agents = append(agents, s.Agent)
		}
	}
	return agents
}

func tasks(n int) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", n)
}
