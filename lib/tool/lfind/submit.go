package lfind

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// submit gives the command to sbatch and prints the job's id.
func (s *session) submit(c *cli.Context, answer *launcher.Answer, host string) error {
	options := &answer.Options
	if !options.Has(sbatch.JobName) {
		options.Set(sbatch.JobName, jobName(s.command[0]))
	}
	argv := append([]string{program(answer, "sbatch"), "--parsable"}, options.Args()...)
	script := "#!/bin/sh\nexec"
	for _, word := range s.command {
		script += " " + shell.Quote(word)
	}
	script += "\n"
	if boolean(c, "dry-run") {
		if host != "" {
			argv = launcher.OverSSH(host, argv)
		}
		if err := s.printCommand(argv); err != nil {
			return err
		}
		_, err := io.WriteString(s.stdout, script)
		return err
	}
	client := slurm.Client{Run: launcher.Runner(host, command.System), Dir: answer.Launcher.Entry.Path}
	_, err := client.Command(c.Context, command.Cmd{
		Name: "sbatch", Args: argv[1:], Stdin: strings.NewReader(script), Stdout: s.stdout, Env: os.Environ(),
	})
	return err
}

// jobName is what a job that runs a program is called.
func jobName(program string) string {
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune("*?[]\\'\"%", r) {
			return '_'
		}
		return r
	}, filepath.Base(program))
	return name[:min(len(name), 60)]
}
