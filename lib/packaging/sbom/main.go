// Command sbom prints a software bill of materials, in the JSON of CycloneDX 1.5:
// every module that is part of the given binaries, as Go has noted it in them.
package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type document struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Time      string    `json:"timestamp"`
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

const ours = "github.com/ponos-tools/ponos"

func main() { os.Exit(app.Main(run)) } //nolint:forbidigo // the one place that exits

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name: "sbom", Usage: "print a bill of materials of binaries", ArgsUsage: "BINARY...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "release", Usage: "`VERSION` of the release"},
			&cli.StringFlag{Name: "time", Usage: "`TIME` of the release"},
		},
		Action: func(c *cli.Context) error {
			d, err := describe(c.Args().Slice(), c.String("release"))
			if err != nil {
				return err
			}
			d.Metadata.Time = c.String("time")
			return app.PrintJSON(stdout, d)
		},
	}.Run(ctx, args, stdin, stdout, stderr)
}

func describe(binaries []string, version string) (document, error) {
	found := map[string]component{}
	for _, path := range binaries {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return document{}, fault.Errorf(fault.Usage, "%s: %w", path, err)
		}
		add(found, "std", info.GoVersion, "", filepath.Base(path))
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			add(found, m.Path, m.Version, m.Sum, filepath.Base(path))
		}
	}
	d := document{Format: "CycloneDX", Spec: "1.5", Version: 1}
	d.Metadata.Component = component{
		Type: "application", Ref: "ponos", Name: ours, Version: version, PURL: "pkg:golang/" + ours + "@" + version,
	}
	d.Components = slices.SortedFunc(maps.Values(found), func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	return d, nil
}

// add notes that a binary has a module.
func add(found map[string]component, path, version, sum, binary string) {
	url := "pkg:golang/" + path + "@" + version
	c, ok := found[url]
	if !ok {
		c = component{Type: "library", Ref: url, Name: path, Version: version, PURL: url}
		if sum != "" {
			c.Properties = append(c.Properties, property{"go:sum", sum})
		}
	}
	if p := (property{"ponos:binary", binary}); !slices.Contains(c.Properties, p) {
		c.Properties = append(c.Properties, p)
	}
	found[url] = c
}
