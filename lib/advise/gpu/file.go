package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// FileName is what the user's catalogue is called.
const FileName = "gpus.yaml"

// Files are where the user's catalogue is looked for: $PONOS_GPUS alone, if it is
// set, else the user's and then the machine's configuration.
func Files(env func(string) string) []string {
	if path := env("PONOS_GPUS"); path != "" {
		return []string{path}
	}
	var files []string
	config := env("XDG_CONFIG_HOME")
	if home := env("HOME"); config == "" && home != "" {
		config = filepath.Join(home, ".config")
	}
	if config != "" {
		files = append(files, filepath.Join(config, "ponos", FileName))
	}
	return append(files, filepath.Join("/etc/ponos", FileName))
}

// Load returns the catalogue with the corrections of the first of Files that there
// is. A file that cannot be used is an error of kind fault.Usage.
func Load(env func(string) string) (*Catalogue, error) {
	for _, path := range Files(env) {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && env("PONOS_GPUS") == "" {
			continue
		}
		if err != nil {
			return nil, fault.Wrap(fault.Usage, err)
		}
		return Builtin().With(path, text)
	}
	return Builtin(), nil
}

// entry is a GPU in a file.
type entry struct {
	Name    string   `yaml:"name"`
	Aliases []string `yaml:"aliases"`
	Memory  int64    `yaml:"memory_mib"`
	CC      string   `yaml:"cc"`
	Year    int      `yaml:"year"`
	Vendor  string   `yaml:"vendor"`
}

// With returns the catalogue with the GPUs of a file: a list of mappings with the
// keys name, aliases, memory_mib, cc, year and vendor. One whose name is in the
// catalogue corrects what it names; others are new. A name or alias that the file
// uses means the GPUs of the file alone.
func (c *Catalogue) With(path string, text []byte) (*Catalogue, error) {
	bad := func(format string, args ...any) error {
		return fault.Errorf(fault.Usage, "%s: %w", path, fmt.Errorf(format, args...))
	}
	var entries []entry
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		words := strings.Fields(strings.TrimPrefix(err.Error(), "yaml: "))
		return nil, bad("%s", strings.Join(words, " "))
	}
	models := slices.Clone(c.models)
	keys := map[string][]int{}
	for i, e := range entries {
		if squeeze(e.Name) == "" {
			return nil, bad("GPU %d has no name", i+1)
		}
		at := slices.IndexFunc(models, func(m Model) bool { return squeeze(m.Name) == squeeze(e.Name) })
		if at < 0 {
			at = len(models)
			models = append(models, Model{Name: e.Name, Vendor: NVIDIA})
		}
		if err := models[at].correct(e); err != nil {
			return nil, bad("%s: %w", e.Name, err)
		}
		for _, name := range append(ownNames(words(e.Name)), e.Aliases...) {
			if key := squeeze(name); key != "" && !slices.Contains(keys[key], at) {
				keys[key] = append(keys[key], at)
			}
		}
	}
	with := newCatalogue(models)
	maps.Copy(with.keys, keys)
	return with, nil
}

// correct takes over what a file says of a model.
func (m *Model) correct(e entry) error {
	switch {
	case e.Memory < 0 || e.Memory > 1<<30:
		return fmt.Errorf("invalid memory_mib %d", e.Memory)
	case e.Memory > 0:
		m.Memory = e.Memory << 20
	}
	if e.CC != "" {
		cc, err := ParseCapability(e.CC)
		if err != nil {
			return err
		}
		m.CC = cc
	}
	switch v := Vendor(strings.ToLower(e.Vendor)); v {
	case "":
	case NVIDIA, AMD, Intel, Apple:
		m.Vendor = v
	default:
		return fmt.Errorf("invalid vendor %q: expected nvidia, amd, intel or apple", e.Vendor)
	}
	if e.Year > 0 {
		m.Year = e.Year
	}
	if len(e.Aliases) > 0 {
		m.Aliases = e.Aliases
	}
	return nil
}
