package tasklist

import (
	"bufio"
	"errors"
	"os"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// ReadEnv reads variables: one NAME=VALUE per line, with blank lines and comments between them.
func ReadEnv(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "--env-file: %w", err)
	}
	defer f.Close()
	env := map[string]string{}
	var errs []error
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export ")
		if line == "" || line[0] == '#' {
			continue
		}
		variable, value, ok := strings.Cut(line, "=")
		if !ok || !task.IsVariable(variable) { // the line may hold a secret
			errs = append(errs, fault.Errorf(fault.Usage, "%s:%d: expected NAME=VALUE, and only letters, digits and _ in NAME", name, n))
			continue
		}
		if l := len(value); l > 1 && (value[0] == '"' || value[0] == '\'') && value[l-1] == value[0] {
			value = value[1 : l-1]
		}
		env[variable] = value
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fault.Errorf(fault.Usage, "%s: %w", name, err))
	}
	return env, errors.Join(errs...)
}
