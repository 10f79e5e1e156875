package need

import (
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/task"
)

func TestCheckValues(t *testing.T) {
	for _, option := range []string{
		"mem=8G", "mem=8000", "mem=0", "mem=8gb", "--mem-per-cpu=500M", "mem_per_gpu=4T", "tmp=100k",
		"time=60", "time=1:30", "time=20:00:00", "time=2-12", "time=1-00:30", "time=4-00:00:00", "time=UNLIMITED", "time=0", "time=2h", "time=1d 12h", "time-min=10", "time-min=2h",
		"cpus-per-task=8", "ntasks=64", "mincpus=2", "cpus-per-gpu=4",
		"nodes=1", "nodes=2-8", "nodes=1k", "nodes=1-10:2,16",
		"gpus=2", "gpus=a100", "gpus=a100:2", "gpus=a100:2,v100:1", "gpus-per-node=nvidia_a100_3g.20gb:1", "gpus-per-task=0", "gpus=1g.5gb:1", "gres=gpu:1g.5gb:2", "gres=gpu:3090:1,shard:2",
		"gres=gpu", "gres=gpu:2", "gres=gpu:a100:2", "gres=gpu:a100", "gres=gpu:2,shard:10", "gres=lustre:10G", "gres=none", "gres=gres/gpu:1",
		"nice=100", "nice=-10", "begin=now+1hour", "constraint=a100&ib", "signal=USR1@60", "signal=R:10@60", "exclusive", "exclusive=user", "exclusive=no", "requeue", "requeue=no",
	} {
		if err := CheckValues(task.Request{Sbatch: []string{option}}); err != nil {
			t.Errorf("%s: %v", option, err)
		}
	}
	for option, want := range map[string]string{
		"mem=8Q":                           `option "mem": invalid value "8Q": expected megabytes, or a whole number and K, M, G or T`,
		"mem=8GiB":                         `invalid value "8GiB"`,
		"mem=1.5G":                         `invalid value "1.5G"`,
		"mem=-1":                           `invalid value "-1"`,
		"mem=lots":                         `invalid value "lots"`,
		"mem_per_cpu=4 G":                  `option "mem-per-cpu": invalid value "4 G"`,
		"mem-per-gpu=G":                    `invalid value "G"`,
		"tmp=1P":                           `invalid value "1P"`,
		"time=2x":                          `option "time": invalid value "2x": expected minutes, HH:MM:SS, DAYS-HH:MM:SS or a duration such as 2h`,
		"time=1:2:3:4":                     `invalid value "1:2:3:4"`,
		"time=1-":                          `invalid value "1-"`,
		"time-min=-5":                      `invalid value "-5"`,
		"cpus-per-task=0":                  `option "cpus-per-task": invalid value "0": expected a whole number from 1`,
		"cpus-per-task=four":               `invalid value "four"`,
		"cpus-per-task=1.5":                `invalid value "1.5"`,
		"ntasks=-1":                        `invalid value "-1"`,
		"nodes=node01":                     `option "nodes": invalid value "node01": expected a number from 1 or a range`,
		"gpus=a100:":                       `option "gpus": invalid value "a100:": expected a number, a type or both, such as 2 or a100:2`,
		"exclusive=maybe":                  `invalid value "maybe": expected one of exclusive, oversubscribe, user, mcs`,
		"cpus-per-gpu=2":                   "--cpus-per-task and --cpus-per-gpu cannot be combined",
		"gpus-per-node=2:a100":             `invalid value "2:a100"`,
		"gres=2":                           `option "gres": invalid value "2": expected NAME, NAME:COUNT or NAME:TYPE:COUNT`,
		"gres=gpu:2:a100":                  `invalid value "gpu:2:a100"`,
		"gres=gpu:":                        `invalid value "gpu:"`,
		"gres=gpu,":                        `invalid value "gpu,"`,
		"nice=much":                        `option "nice": invalid value "much": expected a whole number`,
		"signal=B:USR1@60":                 `option "signal": with B: only the job script gets the signal`,
		"signal=rb:USR1":                   `with B: only the job script`,
		"array=0-9":                        `option "array" is not allowed for a task`,
		"mem=\x1b[31m" + "8G":              "control character",
		"mem=" + strings.Repeat("8", 2000): "longer than",
	} {
		if err := CheckValues(task.Request{Sbatch: []string{"cpus-per-task=2", option}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", option, err, want)
		}
	}
}

// What a person gives later replaces what says the same, and stands together as sbatch takes it.
func TestOverride(t *testing.T) {
	for _, c := range []struct{ first, later, want string }{
		{"mem=1G time=5", "mem-per-cpu=2G", "time=5 mem-per-cpu=2G"},
		{"gpus=2 requeue", "gpus=4 gres=gpu:2 exclusive=no", "requeue gpus=4 gres=gpu:2 exclusive=no"},
		{"exclusive=no", "exclusive", "exclusive"},
	} {
		r, err := Override(task.Request{Sbatch: strings.Fields(c.first)}, strings.Fields(c.later))
		if got := strings.Join(r.Sbatch, " "); err != nil || got != c.want {
			t.Errorf("%s, then %s: %s, %v; want %s", c.first, c.later, got, err, c.want)
		}
	}
}
