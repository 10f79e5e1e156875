package assembly

import (
	"context"
	"fmt"
	"strings"

	"github.com/ponos-tools/ponos/lib/admission"
	"github.com/ponos-tools/ponos/lib/clock"
	launcher "github.com/ponos-tools/ponos/lib/launcher/cluster"
)

// Refused is why Slurm would refuse the jobs of tasks with the options that are
// configured for them, or accept and never start them; "" if nothing is known to speak
// against them. It is advice: Slurm itself decides.
func (p *Parts) Refused(ctx context.Context, gpu bool) string {
	if p.SlurmRunner == nil {
		return ""
	}
	options, err := p.SlurmRunner.Options(ctx, gpu)
	if err != nil {
		return err.Error()
	}
	snapshot, err := launcher.Asker{Slurm: p.Slurm, Now: clock.Now}.Ask(ctx)
	if err != nil {
		return ""
	}
	model := snapshot.Admission()
	job, partitions := admission.JobOf(func(name string) (string, bool) {
		for _, o := range options {
			if value, ok := strings.CutPrefix(o, "--"+name); ok && (value == "" || value[0] == '=') {
				return strings.TrimPrefix(value, "="), true
			}
		}
		return "", false
	})
	for _, name := range partitions {
		if model.Partition(name) == nil { // hidden, or sbatch will say so
			return ""
		}
	}
	for _, f := range model.CheckIn(job, partitions) {
		if f.Verdict != admission.No {
			continue
		}
		if f.Waits {
			return fmt.Sprintf("Slurm would accept the job and never start it: %s: %s", f.Whose, f.Text)
		}
		return fmt.Sprintf("Slurm would refuse the job: %s: %s", f.Whose, f.Text)
	}
	return ""
}
