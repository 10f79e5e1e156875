package need

import (
	"fmt"
	"regexp"

	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/task"
)

// form is how the value of an option of sbatch is written. What any version from 20.11 to
// 26.05 takes is of the form; sbatch may still refuse what is.
type form struct {
	value *regexp.Regexp
	want  string
}

func formOf(pattern, want string) form {
	return form{regexp.MustCompile(`^(?i:` + pattern + `)$`), want}
}

var (
	megabytes = formOf(`[0-9]+([kmgt]b?)?`, "megabytes, or a whole number and K, M, G or T")
	limit     = formOf(`[0-9]+|[0-9]+:[0-9]+(:[0-9]+)?|[0-9]+-[0-9]+(:[0-9]+){0,2}|-1|infinite|unlimited`,
		"minutes, HH:MM:SS, DAYS-HH:MM:SS or a duration such as 2h")
	positive = formOf(`0*[1-9][0-9]*`, "a whole number from 1")
	// A list of counts is taken since 23.02; k and m are for thousands and millions.
	counts = formOf(`[0-9]+[0-9km,:*+/-]*`, "a number or a range, such as 4 or 2-8")
	gpus   = formOf(`([\w.-]+:)?[0-9]+(,([\w.-]+:)?[0-9]+)*`, "a number, optionally after a type, such as 2 or a100:2")
	gres   = formOf(
		`none|[a-z_][\w./-]*([:=][\w.-]+)?([:=][0-9]+[kmgtp]?)?(,[a-z_][\w./-]*([:=][\w.-]+)?([:=][0-9]+[kmgtp]?)?)*`,
		"NAME, NAME:COUNT or NAME:TYPE:COUNT, such as gpu:a100:2")
	nice = formOf(`[+-]?[0-9]{1,10}`, "a whole number")
)

// forms are those of the options whose form is known.
var forms = map[string]form{
	"mem": megabytes, "mem-per-cpu": megabytes, "mem-per-gpu": megabytes, "tmp": megabytes,
	"time": limit, "time-min": limit,
	"cpus-per-task": positive, "cpus-per-gpu": positive, "ntasks": positive, "mincpus": positive,
	"nodes": counts,
	"gpus":  gpus, "gpus-per-node": gpus, "gpus-per-task": gpus, "gpus-per-socket": gpus,
	"gres": gres,
	"nice": nice,
}

// CheckValues checks the values of the options of sbatch of a request, as far as their form is
// known, so that a mistake is reported when the task is submitted.
func CheckValues(r task.Request) error {
	for _, s := range r.Sbatch {
		o, err := Option(s)
		if err != nil {
			return err
		}
		f, known := forms[o.Name]
		if !known || o.Bare || f.value.MatchString(o.Value) {
			continue
		}
		if _, err := unit.Duration(o.Value); o.Name != "time" || err != nil { // a time limit may have units
			return fmt.Errorf("option %q: invalid value %q: expected %s", o.Name, task.Clean(o.Value), f.want)
		}
	}
	return nil
}
