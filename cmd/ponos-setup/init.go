package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ponos-tools/ponos/lib/app"
	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
)

//go:embed ponos.yaml
var example string

// initialize writes the example configuration. It replaces nothing.
func initialize(dir string, stdout io.Writer) error {
	dir, err := config.Expand(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return err
	}
	if strings.ContainsAny(dir, "\n\"\\%$") {
		return fault.Errorf(fault.Usage, "--init %q: the name has a character that a configuration would have to quote", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Errorf(fault.Usage, "--init: %w", err)
	}
	path := filepath.Join(dir, "ponos.yaml")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fault.Hint(fault.Errorf(fault.Usage, "--init: %q is there already", path), "name another directory, or remove the file")
	}
	if err != nil {
		return fault.Errorf(fault.Usage, "--init: %w", err)
	}
	_, err = f.WriteString(strings.ReplaceAll(example, "@DIR@", dir))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s is written. To try it:\n\n"+
		"  export PONOS_CONFIG=%s\n"+
		"  ponos-setup\n"+
		"  ponos-submit --wait -- echo 'hello, world' &\n"+
		"  ponos-poll --every 1s | ponos-stop | ponos-start\n", path, app.Quote(path))
	return err
}
