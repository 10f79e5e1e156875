package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
)

// Version is set by the build; without it, Version is that of the module.
var Version string

// Tool is a program: its command line and what it does.
type Tool struct {
	Name  string
	Usage string // one line, lower case
	// ArgsUsage describes the arguments, such as "[ID...]": as many as there are words, or any number
	// if one ends with "...". Additional arguments are refused, also for commands.
	ArgsUsage   string
	Description string // a few lines for --help
	Examples    string // lines for the end of --help
	// Brief names the options that --help shows if not all fit on one screen: by command, "" for the
	// tool itself. By default, those that are declared first are shown.
	Brief    map[string][]string
	Flags    []cli.Flag
	Commands []*cli.Command
	Action   cli.ActionFunc
	// StopAtArg ends the flags at the first argument, for tools that run a command. In other tools,
	// flags and arguments may be mixed.
	StopAtArg bool
	// Unknown returns a hint to an option that the tool does not have, such as "-N" or "--nodes", or "". It may be nil.
	Unknown func(option string) string
	// Environment checks variables of the environment before an action, whether or not it comes to use them. It may be nil.
	Environment func() error
}

// Main runs a tool as the whole process and returns its exit status. SIGINT and SIGTERM cancel the
// context; the status is then 128 plus the signal's number, unless the tool returns a more specific
// one. A second signal ends the process at once.
func Main(run func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(Interrupted{s.(syscall.Signal)})
	}()
	return run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
}

// MainOf is Main for a tool that does more at a signal than to end: it gets SIGHUP, SIGINT and SIGTERM as they come.
func MainOf(
	run func(ctx context.Context, signals <-chan os.Signal, args []string, stdin io.Reader, stdout, stderr io.Writer) int,
) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	return run(context.Background(), signals, os.Args, os.Stdin, os.Stdout, os.Stderr)
}

// Interrupted is the cause of a context that a signal has ended.
type Interrupted struct{ Signal syscall.Signal }

func (i Interrupted) Error() string { return "interrupted by " + signalName(i.Signal) }

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	}
	return s.String()
}

// Run parses the command line and runs the tool's action. It prints the error, if any, and returns
// the exit status.
func (t Tool) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[1] == "--describe" {
		return t.finish(stderr, PrintJSON(stdout, t.describe()))
	}
	line := progress.Open(stderr, t.Name)
	err := t.app(stdin, stdout, stderr).RunContext(progress.With(ctx, line), t.normalize(args))
	line.Close()
	if err != nil && ctx.Err() != nil {
		var i Interrupted
		if errors.As(context.Cause(ctx), &i) && isContext(err) {
			return 128 + int(i.Signal)
		}
	}
	return t.finish(stderr, err)
}

// isContext reports whether err only says that the context was cancelled.
func isContext(err error) bool {
	var i Interrupted
	return errors.Is(err, context.Canceled) || errors.As(err, &i)
}

// finish prints err in the form of all tools and returns its exit status.
func (t Tool) finish(stderr io.Writer, err error) int {
	stderr = (*progress.Line)(nil).Writer(stderr)
	if errors.Is(err, syscall.EPIPE) {
		return 128 + int(syscall.SIGPIPE)
	}
	code, silent := fault.Code(err)
	if !silent {
		Report(stderr, t.Name, err)
	}
	return code
}

// Report prints an error with its hint; joined errors are printed one by one.
func Report(stderr io.Writer, tool string, err error) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && err.Error() == joined.(error).Error() {
		for _, e := range joined.Unwrap() {
			Report(stderr, tool, e)
		}
		return
	}
	var text strings.Builder // a message and its hint are one write: another process may write to the same place, or read it
	for line := range strings.SplitSeq(strings.TrimRight(fault.Text(err), "\n"), "\n") {
		fmt.Fprintf(&text, "%s: %s\n", tool, Sanitize(line))
	}
	if hint := fault.HintOf(err); hint != "" {
		fmt.Fprintf(&text, "%s: hint: %s\n", tool, Sanitize(hint))
	}
	_, _ = io.WriteString(stderr, text.String())
}

func (t Tool) app(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	usageError := func(c *cli.Context, err error, _ bool) error {
		flags, name := c.App.Flags, t.Name
		if c.Command != nil && c.Command.Name != t.Name {
			flags, name = c.Command.Flags, c.Command.HelpName
		}
		return wrongFlag(err, name, flags, t.instead)
	}
	var prepare func(path []string, commands []*cli.Command)
	prepare = func(path []string, commands []*cli.Command) {
		for _, c := range commands {
			path := append(slices.Clone(path), c.Name)
			help := t.commandPage(path, c)
			c.OnUsageError = usageError
			c.HideHelp = true
			c.Before = func(c *cli.Context) error { return begin(c, help) }
			c.Flags = help.all
			if c.Action == nil {
				c.Action = t.unknownCommand
			} else if len(c.Subcommands) == 0 && !c.Hidden {
				c.Action = t.checked(c.ArgsUsage, c.Action)
			}
			prepare(path, c.Subcommands)
		}
	}
	help := t.page()
	prepare(nil, t.Commands)
	action := t.Action
	if action == nil {
		action = t.unknownCommand
	} else if len(t.Commands) == 0 {
		action = t.checked(t.ArgsUsage, action)
	} else {
		action = t.checked("...", action) // it looks at its arguments itself
	}
	return &cli.App{
		Name: t.Name, Usage: t.Usage, ArgsUsage: t.ArgsUsage, Description: t.Description,
		Version: version(), Reader: stdin, Writer: stdout, ErrWriter: stderr,
		Flags: help.all, Commands: t.Commands, Action: action,
		HideHelp: true, HideVersion: true, UseShortOptionHandling: true,
		DisableSliceFlagSeparator: true,
		OnUsageError:              usageError,
		ExitErrHandler:            func(*cli.Context, error) {},
		Before: func(c *cli.Context) error {
			if c.Bool("version") {
				return printed(c, t.Name+" "+version()+"\n")
			}
			return begin(c, help)
		},
	}
}

// instead says what was meant by an unknown option: a command, such as explain for --explain, or what only the tool knows.
func (t Tool) instead(option string) string {
	for _, c := range t.Commands {
		if "--"+c.Name == option && !c.Hidden {
			return fmt.Sprintf("did you mean %q?", t.Name+" "+c.Name)
		}
	}
	if t.Unknown == nil {
		return ""
	}
	return t.Unknown(option)
}

// begin is what comes before an action: help, and the checks of the flags that were given. From here on only the values of
// flags count: to look for one that was not given, the library works out the names of all, which took most of a tool's start.
func begin(c *cli.Context, help page) error {
	err := help.show(c)
	flags := c.Command.Flags
	c.Command.Flags, c.App.Flags = nil, nil
	for _, f := range flags {
		if check, ok := f.(cli.ActionableFlag); ok && err == nil && c.IsSet(f.Names()[0]) {
			err = check.RunAction(c)
		}
	}
	return err
}

// checked returns an action that refuses more arguments than there are words in usage, and a wrong environment.
func (t Tool) checked(usage string, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if most := len(strings.Fields(usage)); c.NArg() > most && !strings.Contains(usage, "...") {
			return fault.Errorf(fault.Usage, "unexpected argument %q", c.Args().Get(most))
		}
		if t.Environment != nil {
			if err := t.Environment(); err != nil {
				return err
			}
		}
		return action(c)
	}
}

// unknownCommand is the action of a tool or command that only has commands.
func (t Tool) unknownCommand(c *cli.Context) error {
	names := make([]string, 0, len(c.Command.Subcommands))
	for _, sub := range c.Command.VisibleCommands() {
		names = append(names, sub.Name)
	}
	hint := "the commands are " + strings.Join(names, ", ")
	if !c.Args().Present() {
		return fault.Hint(fault.Errorf(fault.Usage, "a command is missing"), hint)
	}
	if near := Nearest(c.Args().First(), names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return fault.Hint(fault.Errorf(fault.Usage, "unknown command %q", c.Args().First()), hint)
}

var versionFlag = &cli.BoolFlag{Name: "version", Aliases: []string{"V"}, Usage: "print the version and exit"}

func version() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return strings.Trim(info.Main.Version, "()")
	}
	return "devel"
}
