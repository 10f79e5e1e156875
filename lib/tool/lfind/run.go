package lfind

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/token"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// runCommand runs a command through the launcher found. Where it can, lfind
// becomes that command (or ssh, or srun), so that output, exit status, signals and
// the terminal are its own.
func (s *session) runCommand(c *cli.Context) error {
	if len(s.command) == 0 {
		return fault.Hint(usage("a command is missing"), `put it after "--": lfind run 'cuda()' -- python train.py`)
	}
	if c.NArg() == 0 {
		return usage("a request is missing before \"--\"")
	}
	r, err := s.request(c)
	if err != nil {
		return err
	}
	if err := override(c, new(sbatch.Options)); err != nil {
		return err
	}
	f, search, err := s.load(c)
	if err != nil {
		return err
	}
	answer, err := search.Find(c.Context, r)
	if err != nil {
		return unreachable(f, err)
	}
	if answer == nil {
		return search.Nothing(c.Context, r)
	}
	if answer, err = s.verified(c, f, search, r, answer); err != nil {
		return err
	}
	s.noteUnknown(c, answer)
	host := launcher.Hostname(f, answer.Launcher.Entry.Connector)
	switch {
	case answer.Local():
		return s.runLocal(c, f, answer, host)
	case boolean(c, "attach"):
		argv := append([]string{program(answer, "srun")}, answer.Options.Args()...)
		if s.onTerminal() {
			argv = append(argv, "--pty")
		}
		return s.become(c, host, append(append(argv, "--"), s.command...))
	}
	return s.submit(c, answer, host)
}

// runLocal runs the command on the machine of a local launcher, holding the
// launcher's tokens as long as it runs.
func (s *session) runLocal(c *cli.Context, f *file.File, answer *launcher.Answer, host string) error {
	wants, err := tokens(f, answer.Launcher)
	if err != nil {
		return err
	}
	if boolean(c, "dry-run") {
		return s.become(c, host, s.command)
	}
	var held []*os.File
	if len(wants) > 0 {
		held, err = token.Take(c.Context, token.Dir(os.Getenv), wants, false)
		if errors.Is(err, token.ErrTaken) && !boolean(c, "no-wait") {
			s.note(c, "note: waiting for the tokens of launcher %q", answer.Launcher.Name)
			held, err = token.Take(c.Context, token.Dir(os.Getenv), wants, true)
		}
		switch {
		case errors.Is(err, token.ErrTaken):
			return fault.Hint(fault.Wrap(fault.Busy, err), "without --no-wait, lfind waits until they are free")
		case err != nil:
			return err
		}
	}
	return s.become(c, host, s.command, held...)
}

// tokens are those that a launcher takes, with how many there are.
func tokens(f *file.File, l *launcher.Launcher) ([]token.Want, error) {
	var wants []token.Want
	for _, t := range l.Entry.Tokens {
		total := -1
		for _, defined := range f.Tokens {
			if defined.ID == t.ID {
				total = defined.Count
			}
		}
		if total < 0 {
			err := usage("launcher %q takes the token %q, and tokens.yaml does not give its number", l.Name, t.ID)
			tokens := filepath.Join(filepath.Dir(f.Path), "tokens.yaml")
			return nil, fault.Hint(err, fmt.Sprintf("define it in %s: countertoken: { %s: { tokens: 1 } }", tokens, t.ID))
		}
		wants = append(wants, token.Want{Token: t, Total: total})
	}
	return wants, nil
}

// become replaces this process by a program, on this machine or over ssh.
func (s *session) become(c *cli.Context, host string, argv []string, keep ...*os.File) error {
	if host != "" {
		argv = launcher.OverSSH(host, argv)
		if s.onTerminal() {
			argv = append([]string{argv[0], "-t"}, argv[1:]...)
		}
	}
	if boolean(c, "dry-run") {
		return s.printCommand(argv)
	}
	err := command.Replace(argv[0], argv[1:], os.Environ(), keep...)
	var missing *command.NotFoundError
	if errors.As(err, &missing) {
		return fault.Exit(127, err)
	}
	return err
}

func (s *session) onTerminal() bool { return app.IsTerminal(s.stdin) && app.IsTerminal(s.stdout) }

func (s *session) printCommand(argv []string) error {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = shell.Quote(a)
	}
	_, err := fmt.Fprintln(s.stdout, strings.Join(quoted, " "))
	return err
}
