package assembly

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	slurmrunner "github.com/ponos-tools/ponos/lib/agent/runner/slurm"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// daemon is the Slurm in which an agent is a job of its own.
type daemon struct{ client *slurm.Client }

// daemonMark begins the comment of an agent's own job.
const daemonMark = "PONOS_AGENT="

// daemonComment marks the job of the agent of this configuration: there may be
// several agents, with a data directory each.
func (p *System) daemonComment() string {
	comment := daemonMark + p.Config.DataDir
	if len(comment) > 79 { // squeue is called with a width of 80
		comment = comment[:20] + "..." + comment[len(comment)-56:]
	}
	return comment
}

// otherDaemon returns the job of another agent of this configuration, or "".
func (p *System) otherDaemon(ctx context.Context) (string, error) {
	d := p.mode.can().daemon
	if d == nil {
		return "", nil
	}
	rows, err := d.client.Queue(ctx, os.Geteuid())
	if err != nil {
		return "", err
	}
	for i := range rows {
		if rows[i].Comment == p.daemonComment() && rows[i].Number() != os.Getenv("SLURM_JOB_ID") && slurmrunner.Alive(&rows[i]) {
			return rows[i].Number(), nil
		}
	}
	return "", nil
}

// WantsDaemon reports whether this agent is to become a job of Slurm.
func (p *System) WantsDaemon() bool {
	return p.mode.can().daemon != nil && os.Getenv("SLURM_JOB_ID") == ""
}

// SubmitDaemon submits the agent as a job that requeues itself, and returns its
// id.
func (p *System) SubmitDaemon(ctx context.Context, every time.Duration) (string, error) {
	script := filepath.Join(p.Config.StateDir(), "daemon.sh")
	text, err := p.daemonScript(every)
	if err != nil {
		return "", err
	}
	if err := renameio.WriteFile(script, text, 0o700); err != nil {
		return "", err
	}
	options, err := slurmrunner.Resolve(ctx, Find, "slurm.base", p.Config.Slurm.Base)
	if err != nil {
		return "", err
	}
	daemon, err := slurmrunner.Resolve(ctx, Find, "slurm.daemon", p.Config.Slurm.Daemon)
	if err != nil {
		return "", err
	}
	own := sbatch.Options{
		{Name: sbatch.JobName, Value: "ponos-agent"},
		{Name: sbatch.OpenMode, Value: "append"},
		{Name: "requeue"},
		{Name: "output", Value: p.DaemonLog()},
		// Long enough to end a turn; Slurm checks every 30 seconds.
		{Name: "signal", Value: "B:USR1@120"},
	}
	batch := slurm.Batch{Script: script, Env: slurmrunner.Environ(os.Environ())}
	all := own.With(options...).With(daemon...)
	if all.Has(sbatch.NoRequeue) {
		return "", fault.Errorf(fault.Usage, "slurm.daemon: the agent's job must be requeued: requeue cannot be false")
	}
	batch.Options = append(all.Args(), "--comment="+p.daemonComment())
	return p.mode.can().daemon.client.Submit(ctx, batch)
}

// DaemonLog is the file that the agent's job appends to.
func (p *System) DaemonLog() string {
	if output, ok := p.Config.Slurm.Daemon.Get("output"); ok {
		return output
	}
	return filepath.Join(p.Config.StateDir(), "daemon.log")
}

// daemonScript returns the batch script of the agent's job.
func (p *System) daemonScript(every time.Duration) ([]byte, error) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("#!/bin/bash")
	line("# The Ponos agent as a job of Slurm, made by ponos-setup. It requeues itself before its time is up.")
	line("")
	var errs []error
	for _, tool := range []string{"setup", "poll", "stop", "start"} {
		words, err := command.Sibling("ponos-" + tool)
		errs = append(errs, err)
		for i := range words {
			words[i] = shell.Quote(words[i])
		}
		line("%s=(%s)", tool, strings.Join(words, " "))
	}
	line("export PONOS_CONFIG=%s", shell.Quote(p.Config.Path))
	line("pid_file=%s", shell.Quote(p.Config.PIDFile))
	line("every=%s", every)
	b.WriteString(`
log() { echo "$(date '+%Y-%m-%d %H:%M:%S') job $SLURM_JOB_ID on $(hostname): $*"; }

# End the agent: ponos-poll ends after its turn, the others when they have read its
# last line. What takes longer is taken up again by the next agent.
end() {
	[ ! -s "$pid_file" ] || kill -TERM "$(cat "$pid_file")" 2>/dev/null
	for _ in $(seq 60); do
		kill -0 "$agent" 2>/dev/null || return
		sleep 1
	done
	kill -TERM "$agent" 2>/dev/null
}

requeue() {
	log "requeueing, as the time is nearly up"
	end
	scontrol requeue "$SLURM_JOB_ID" && sleep 300
	exit 1
}

trap requeue USR1
trap 'log "ending"; end; exit 143' TERM

log "starting (restart ${SLURM_RESTART_COUNT:-0})"
"${setup[@]}" --no-daemon || exit
while :; do
	("${poll[@]}" --every "$every" | "${stop[@]}" | "${start[@]}" >/dev/null; exit "${PIPESTATUS[0]}") &
	agent=$!
	wait "$agent"
	code=$?
	log "the agent ended with status $code"
	# Configuration, or another agent: trying again does not help.
	case $code in 2 | 4) exit "$code" ;; esac
	sleep 30 &
	wait $!
done
`)
	return []byte(b.String()), errors.Join(errs...)
}

// TidyDaily is Tidy, at most once a day, for tools that take one turn at a time.
func (p *System) TidyDaily(ctx context.Context) error {
	mark := filepath.Join(p.Config.StateDir(), "tidied")
	if info, err := os.Stat(mark); err == nil && clock.Since(clock.Modified(info)) < 24*time.Hour {
		return nil
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return err
	}
	return errors.Join(clock.Touch(mark), p.Tidy(ctx))
}

// Tidy removes old files that are no longer used.
func (p *System) Tidy(ctx context.Context) error {
	return errors.Join(
		p.Agent.Tidy(ctx, time.Duration(p.Config.Retention), time.Duration(p.Config.Environment.Keep)),
		p.Agent.Queue.Tidy(time.Duration(p.Config.SpoolRetention)),
	)
}
