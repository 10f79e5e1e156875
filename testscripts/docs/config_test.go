package docs

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// keys lists the keys of a part of the configuration, with dots.
func keys(of reflect.Type, prefix string) []string {
	var all []string
	for i := range of.NumField() {
		name := of.Field(i).Tag.Get("yaml")
		switch {
		case name == "" || name == "-":
		case of.Field(i).Type.Kind() == reflect.Struct:
			inner := keys(of.Field(i).Type, prefix+name+".")
			if len(inner) == 0 { // a value of several forms
				inner = []string{prefix + name}
			}
			all = append(all, inner...)
		default:
			all = append(all, prefix+name)
		}
	}
	return all
}

func TestEveryKeyIsInThePageOfTheConfiguration(t *testing.T) {
	page := read(t, "man/ponos.yaml.5.md")
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\*\*[a-z].*\n:`).FindAllString(page, -1) {
		for _, key := range regexp.MustCompile(`\*\*([a-z0-9_.]+):?\*\*`).FindAllStringSubmatch(m, -1) {
			explained[key[1]] = true
		}
	}
	for _, key := range keys(reflect.TypeFor[config.Config](), "") {
		if !explained[key] {
			t.Errorf("man/ponos.yaml.5.md does not explain %s", key)
		}
		delete(explained, key)
	}
	for key := range explained {
		t.Errorf("man/ponos.yaml.5.md explains %s, which is not there", key)
	}
}

// TestNamesOfPySlurm reads the lists "*time_limit*, ...\n:   **--time**, ...".
func TestNamesOfPySlurm(t *testing.T) {
	page := read(t, "man/ponos.yaml.5.md")
	names, options := regexp.MustCompile(`\*([a-z_]+)\*`), regexp.MustCompile(`\*\*--([a-z-]+)\*\*`)
	n := 0
	for _, m := range regexp.MustCompile(`(?m)^(\*[a-z_]+\*(?:, \*[a-z_]+\*)*)\n: +(\*\*--.*)$`).FindAllStringSubmatch(page, -1) {
		theirs, ours := names.FindAllStringSubmatch(m[1], -1), options.FindAllStringSubmatch(m[2], -1)
		if len(theirs) != len(ours) {
			t.Errorf("%d names, %d options: %s", len(theirs), len(ours), m[0])
			continue
		}
		for i := range theirs {
			n++
			value := "1"
			switch d := sbatch.Lookup(ours[i][1]); {
			case d == nil:
				t.Errorf("the page names --%s, which sbatch does not have", ours[i][1])
			case d.Form == sbatch.GRES:
				value = "gpu:1"
			case d.Form == sbatch.Flag || d.Form == sbatch.Word:
				value = "true"
			}
			c, err := assembly.ReadConfiguration(strings.NewReader("queue: spool:/x\nslurm: {daemon: {"+theirs[i][1]+": '"+value+"'}}"), "ponos.yaml")
			if err != nil || len(c.Slurm.Daemon) != 1 || c.Slurm.Daemon[0].Name != ours[i][1] {
				t.Errorf("%s: %v, %v; the page says %s", theirs[i][1], c.Slurm.Daemon, err, ours[i][1])
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d names are found", n)
	}
}

func TestExamplesOfConfigurationsAreRead(t *testing.T) {
	for _, source := range []string{"man/ponos.yaml.5.md", "man/ponos-tutorial.7.md", "man/ponos-arkindex.7.md", "man/ponos-vast.7.md"} {
		blocks := regexp.MustCompile("(?s)\n```yaml\n(.*?)```\n").FindAllStringSubmatch(read(t, source), -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no example of a configuration", source)
		}
		for _, b := range blocks {
			if _, err := assembly.ReadConfiguration(strings.NewReader(b[1]), source); err != nil {
				t.Errorf("%v\nin\n%s", err, b[1])
			}
		}
	}
	if _, err := assembly.ReadConfiguration(strings.NewReader(read(t, "examples/site/ponos.yaml")), "examples/site/ponos.yaml"); err != nil {
		t.Error(err)
	}
}
