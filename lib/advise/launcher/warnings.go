package launcher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Warnings returns warnings about figures that a file omits, or that contradict the catalogue
// of GPUs. With them, Slurm may refuse the options found, or a match may be missed. Launchers
// that query Slurm have no warnings.
func Warnings(f *file.File, catalogue *gpu.Catalogue) []file.Problem {
	d := warnings{path: f.Path}
	for i := range f.Entries {
		e := &f.Entries[i]
		if e.QuerySlurm || e.Disabled {
			continue
		}
		l := newLauncher(e, catalogue)
		if l.machine != nil {
			d.gpus(e.Pos, "", l.machine.gpus)
			continue
		}
		limited := false
		for j, p := range l.partitions {
			whose := fmt.Sprintf("partition %q: ", p.name)
			for _, c := range p.choices {
				limited = limited || c.maxDuration > 0
			}
			for k, g := range p.groups {
				pos := e.Partitions[j].Nodes[k].Pos
				limited = limited || g.maxDuration > 0
				d.gpus(pos, whose, g.gpus)
				var open []string
				if g.cores == 0 {
					open = append(open, "cores")
				}
				if g.memory == 0 {
					open = append(open, "memory")
				}
				if len(open) > 0 {
					d.warn(pos, "",
						"%swhat the nodes have is not known: %s; any request is assumed to fit", whose, strings.Join(open, ", "))
				}
			}
		}
		if !limited && len(l.partitions) > 0 {
			d.warn(e.Pos, `set "max_duration" in a configuration or a qos`,
				"launcher %q: no time limit is known: any duration is assumed to be allowed", e.ID)
		}
	}
	return d.problems
}

type warnings struct {
	path     string
	problems []file.Problem
}

// warn adds a warning, unless one with the same text exists.
func (d *warnings) warn(at file.Pos, hint, format string, args ...any) {
	p := file.Problem{File: d.path, Pos: at, Warning: true, Message: fmt.Sprintf(format, args...), Hint: hint}
	if !slices.ContainsFunc(d.problems, func(q file.Problem) bool { return q.Message == p.Message && q.File == p.File }) {
		d.problems = append(d.problems, p)
	}
}

// gpus checks the GPUs of a group of nodes or of a machine.
func (d *warnings) gpus(at file.Pos, whose string, gpus []gpuSet) {
	for _, g := range gpus {
		named := len(g.is.Models) > 0
		what := "GPUs"
		if name := firstOf(g.model, g.gres, ""); name != "?" {
			what = fmt.Sprintf("GPUs %q", name)
		}
		if len(g.is.Contradicts) > 0 {
			d.warn(at, "", "%sthe features %s do not agree with the %s", whose, strings.Join(g.is.Contradicts, ", "), what)
		}
		switch {
		case named && g.is.Most > 0 && g.least > g.is.Most+g.is.Most/10:
			d.warn(at, "", "%s%s of memory, but %s has %s at most",
				whose, unit.FormatSize(g.least), g.is.Label(), unit.FormatSize(g.is.Most))
		case !named && g.least == 0 && g.is.Slice == "":
			d.warn(at, `set "memory", or a "model" that the catalogue has`,
				"%sof the %s neither the model nor the memory is known: a request for either does not find them", whose, what)
		case g.least < g.most:
			d.warn(at, `set "memory"`, "%sthe %s have %s or %s: a request for more than the smaller does not find them",
				whose, what, unit.FormatSize(g.least), unit.FormatSize(g.most))
		}
		if len(gpus) > 1 && g.gres == "" {
			d.warn(at, `set "gres_type" to the types that Slurm has`,
				"%sseveral kinds of GPUs, without the types by which Slurm distinguishes them: a job may get any of them", whose)
		}
	}
}
