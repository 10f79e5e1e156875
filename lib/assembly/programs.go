package assembly

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/config"
)

// Check is something that ponos-setup has looked at.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// program is a program that an agent needs, at least in a version.
type program struct {
	name  string
	least [2]int
	slurm bool
}

func programs(c config.Config) []program {
	list := []program{{"git", [2]int{2, 20}, false}, {c.Environment.Python, [2]int{3, 8}, false}, {"bash", [2]int{4, 4}, false}}
	if c.Mode == "slurm" {
		for _, name := range []string{"sbatch", "squeue", "sacct", "scancel", "scontrol"} {
			list = append(list, program{name, [2]int{20, 11}, true})
		}
	}
	return list
}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)[^\s,(]*`)

// CheckPrograms runs each program that the configuration needs, for its version.
func CheckPrograms(ctx context.Context, run command.Runner, c config.Config) []Check {
	var checks []Check
	for _, p := range programs(c) {
		check := Check{Name: p.name}
		result, err := run.Run(ctx, command.Cmd{Name: p.name, Args: []string{"--version"}, Timeout: time.Minute})
		text, _, _ := strings.Cut(strings.TrimSpace(string(result.Stdout)), "\n")
		match := versionNumber.FindStringSubmatch(text)
		switch {
		case err != nil:
			check.Detail, check.Hint = err.Error(), fmt.Sprintf("install %s, or put it into PATH", p.name)
		case match == nil:
			check.Detail = fmt.Sprintf("it does not tell its version but %.60q", text)
		default:
			major, _ := strconv.Atoi(match[1])
			minor, _ := strconv.Atoi(match[2])
			check.Detail = match[0]
			check.OK = major > p.least[0] || major == p.least[0] && minor >= p.least[1]
			if !check.OK {
				check.Hint = fmt.Sprintf("at least version %d.%02d is needed", p.least[0], p.least[1])
			}
		}
		checks = append(checks, check)
	}
	return checks
}
