package assembly

import (
	"context"
	"fmt"
	"regexp"
	"slices"
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
	least [3]int
	slurm bool
}

// needs is the least version, as the program itself writes it.
func (p program) needs() string {
	if p.least[2] > 0 {
		return fmt.Sprintf("%d.%d.%d", p.least[0], p.least[1], p.least[2])
	}
	return fmt.Sprintf("%d.%02d", p.least[0], p.least[1])
}

func programs(c config.Config) []program {
	if c.Mode == "vast" { // tasks run from images
		if c.Vast.Via == "cli" {
			// Before, --retry took no number, and every call failed.
			return []program{{"vastai", [3]int{1, 0, 13}, false}}
		}
		return nil
	}
	list := []program{{"git", [3]int{2, 20}, false}, {c.Environment.Python, [3]int{3, 8}, false}, {"bash", [3]int{4, 4}, false}}
	if c.Mode == "slurm" {
		for _, name := range []string{"sbatch", "squeue", "sacct", "scancel", "scontrol"} {
			list = append(list, program{name, [3]int{20, 11}, true})
		}
	}
	return list
}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)(?:\.(\d+))?[^\s,(]*`)

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
			var version [3]int
			for i := range version {
				version[i], _ = strconv.Atoi(match[i+1]) // "" is 0
			}
			check.Detail = match[0]
			check.OK = slices.Compare(version[:], p.least[:]) >= 0
			if !check.OK {
				check.Hint = "at least version " + p.needs() + " is needed"
			}
		}
		checks = append(checks, check)
	}
	return checks
}
