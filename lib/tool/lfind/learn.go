package lfind

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	used "github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// learnFrom is how far back runs teach what the next one needs.
const learnFrom = 30 * 24 * time.Hour

// learn fills in how long the job takes and how much memory it needs, where the request
// does not say it, from the user's own runs of that name.
func (s *session) learn(c *cli.Context, r *request.Request) error {
	name := text(c, "learn")
	if name == "" {
		if set(c, "risk").IsSet("risk") {
			return usage("--risk requires --learn")
		}
		return nil
	}
	risk, err := unit.Risk(text(c, "risk"))
	if err != nil {
		return usage("--risk: %w", err)
	}
	me, err := nss.Me()
	if err != nil {
		return err
	}
	var runs []used.Run
	var doubts slurm.Doubts
	client, now, stem := slurm.Client{Odd: doubts.Add}, clock.Now(), forecast.Stem(name)
	period := slurm.Period{Since: now.Add(-learnFrom), Until: now, Users: []string{me}}
	if err := client.EachConsumed(c.Context, nil, period, func(job *slurm.Consumed) error {
		if forecast.Stem(job.Name) == stem {
			runs = append(runs, used.Of(job))
		}
		return nil
	}); err != nil {
		return fault.Hint(fmt.Errorf("--learn: %w", err), "it needs the accounting of Slurm: sacct")
	}
	for _, doubt := range doubts.Warnings() {
		app.Report(s.stderr, "lfind", fmt.Errorf("warning: %s", doubt))
	}
	l := used.Learn(runs, risk)
	if l.Runs == 0 && l.Peaks == 0 {
		return fault.Errorf(fault.Failed, "--learn: no job of yours named %q has ended in the last 30 days", name)
	}
	var learned []string
	for i := range r.Alternatives {
		a := &r.Alternatives[i]
		if a.Duration == 0 && l.Cut {
			return fault.Hint(
				fault.Errorf(fault.Failed,
					"--learn: too many runs of %q ended at their time limit: how long it takes is not known", name),
				"add duration= to the request")
		}
		if a.Memory == 0 && a.MemPerGPU == 0 && l.Killed {
			return fault.Hint(
				fault.Errorf(fault.Failed, "--learn: too many runs of %q ran out of memory: how much it needs is not known", name),
				"add cpu(mem=...) to the request")
		}
	}
	length, memory := r.Fill(l.Time, l.MemMB<<20)
	if length > 0 {
		learned = append(learned, "duration="+unit.FormatDuration(length))
	}
	if memory > 0 {
		learned = append(learned, fmt.Sprintf("mem=%dMiB", memory>>20))
	}
	if len(learned) > 0 {
		few := ""
		if l.Few {
			few = " (half as much again as the most that was used, as there are few runs)"
		}
		s.note(c, "note: learned from %d runs of %q: %s%s", max(l.Runs, l.Peaks), name, strings.Join(learned, ", "), few)
	}
	return nil
}
