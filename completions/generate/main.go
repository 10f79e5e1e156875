// Command generate makes the completions of bash, zsh and fish for tools, from
// what each says of itself with --describe.
//
//	go run ./completions/generate -bin bin -out completions TOOL...
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

func main() { os.Exit(app.Main(run)) } //nolint:forbidigo // the one place that exits

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name: "generate", Usage: "make the shell completions of tools", ArgsUsage: "TOOL...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "bin", Value: "bin", Usage: "the tools are in `DIR`"},
			&cli.StringFlag{Name: "out", Value: "completions", Usage: "write below `DIR`"},
		},
		Action: func(c *cli.Context) error {
			for _, tool := range c.Args().Slice() {
				if err := generate(c.Context, c.String("bin"), c.String("out"), tool, c.Args().Slice()); err != nil {
					return err
				}
			}
			return nil
		},
	}.Run(ctx, args, stdin, stdout, stderr)
}

// generate writes the three completions of a tool, one of those.
func generate(ctx context.Context, bin, out, tool string, tools []string) error {
	path, err := filepath.Abs(filepath.Join(bin, tool))
	if err != nil {
		return err
	}
	result, err := command.System.Run(ctx, command.Cmd{Name: path, Args: []string{"--describe"}, Timeout: time.Minute})
	if err != nil {
		return err
	}
	var d app.Description
	if err := json.Unmarshal(result.Stdout, &d); err != nil {
		return fault.Errorf(fault.Usage, "%s --describe: %w", tool, err)
	}
	writers := [...]func(io.Writer, app.Description){bash, zsh, fish}
	if strings.HasPrefix(d.Args, "TOOL") {
		writers = caller(slices.DeleteFunc(slices.Clone(tools), func(name string) bool { return name == tool }))
	}
	for i, name := range []string{"bash/" + tool, "zsh/_" + tool, "fish/" + tool + ".fish"} {
		var text bytes.Buffer
		writers[i](&text, d)
		file := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("completions: %w", err)
		}
	}
	return nil
}
