package lfind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// submit gives the command to sbatch and prints the job's id. With --wait it waits
// for the end of the job, and passes on what it prints and its exit status.
func (s *session) submit(c *cli.Context, answer *launcher.Answer, host string) error {
	options := &answer.Options
	if !options.Has("job-name") {
		options.Set("job-name", jobName(s.command[0]))
	}
	wait := boolean(c, "wait")
	follow := wait && host == "" && !options.Has("output") && !options.Has("error") && !boolean(c, "dry-run")
	var output *followed
	if follow {
		var err error
		if output, err = newFollowed(); err != nil {
			return err
		}
		defer output.remove()
		options.Set("output", output.path("out"))
		options.Set("error", output.path("err"))
	}
	argv := append([]string{program(answer, "sbatch"), "--parsable"}, options.Args()...)
	if wait {
		argv = append(argv, "--wait")
	}
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
	if !wait {
		var stderr bytes.Buffer
		_, err := launcher.Runner(host, command.System).Run(c.Context, command.Cmd{
			Name: argv[0], Args: argv[1:], Stdin: strings.NewReader(script), Stdout: s.stdout, Stderr: &stderr,
			Env: os.Environ(), Timeout: slurm.DefaultTimeout,
		})
		return refusedBy(argv[0], err, stderr.String())
	}
	return s.wait(c, answer, host, argv, script, output)
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

// refusedBy makes of sbatch's failure an error with sbatch's own words.
func refusedBy(program string, err error, stderr string) error {
	var exit *command.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	exit.Stderr = stderr
	return fault.Wrap(fault.Unavailable, slurm.Refusal(filepath.Base(program), exit))
}

// wait runs sbatch --wait. When this process is interrupted the job is cancelled.
func (s *session) wait(c *cli.Context, answer *launcher.Answer, host string, argv []string, script string, output *followed) error {
	run := launcher.Runner(host, command.System)
	id := newJobID()
	var stderr bytes.Buffer
	// sbatch outlives a signal to lfind until its job is known and cancelled.
	own, stop := context.WithCancel(context.WithoutCancel(c.Context))
	defer stop()
	var result error
	ended := make(chan struct{})
	go func() {
		_, result = run.Run(own, command.Cmd{
			Name: argv[0], Args: argv[1:], Stdin: strings.NewReader(script), Stdout: id, Stderr: &stderr, Env: os.Environ(),
		})
		close(ended)
	}()
	copied := make(chan struct{})
	if output != nil {
		go func() {
			output.follow(own, s.stdout, s.stderr)
			close(copied)
		}()
	}
	var err error
	select {
	case <-ended:
		err = result
	case <-c.Done():
		s.cancel(c, answer, run, id)
		stop()
		<-ended
		err = context.Cause(c.Context)
	}
	stop()
	if output != nil {
		<-copied
		if _, e := os.Stat(output.path("out")); e != nil && id.get() != "" && c.Err() == nil {
			s.note(c, "note: no output of job %s: do the nodes share the directory %s?", id.get(), filepath.Dir(output.dir))
		}
	}
	var exit *command.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if id.get() == "" {
		return refusedBy(argv[0], err, stderr.String())
	}
	return fault.Exit(s.status(c, answer, run, id.get(), exit.Code), nil)
}

// status is the exit status of a job for which sbatch has returned code. Of a job
// that a signal has ended sbatch says 1; the controller still knows better.
func (s *session) status(c *cli.Context, answer *launcher.Answer, run command.Runner, id string, code int) int {
	if code != 1 {
		return code
	}
	ctx, stop := context.WithTimeout(c.Context, patience)
	defer stop()
	client := slurm.Client{Run: run, Dir: answer.Launcher.Entry.Path}
	if jobs, err := client.JobDetails(ctx, id); err == nil && len(jobs) == 1 && jobs[0].Exit.Signal > 0 {
		return 128 + jobs[0].Exit.Signal
	}
	return code
}

// patience is how long an interrupted lfind waits for sbatch to tell the job's id.
const patience = 10 * time.Second

// cancel ends the job that was submitted, if there is one.
func (s *session) cancel(c *cli.Context, answer *launcher.Answer, run command.Runner, id *jobID) {
	select {
	case <-id.known:
	case <-time.After(patience):
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.Context), patience)
	defer stop()
	if _, err := run.Run(ctx, command.Cmd{Name: program(answer, "scancel"), Args: []string{id.get()}}); err != nil {
		s.note(c, "job %s could not be cancelled: %v", id.get(), err)
		return
	}
	// A job that was cancelled while it began may create its files after they were removed, and newer
	// versions of Slurm their directory too.
	client := slurm.Client{Run: run, Dir: answer.Launcher.Entry.Path}
	for ctx.Err() == nil {
		jobs, err := client.JobDetails(ctx, id.get())
		if err != nil || len(jobs) != 1 || !slurm.Runs(jobs[0].State) && jobs[0].State != "COMPLETING" {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// jobID takes the id that sbatch --parsable prints in its first line.
type jobID struct {
	line  []byte
	known chan struct{}
}

func newJobID() *jobID { return &jobID{known: make(chan struct{})} }

func (j *jobID) Write(p []byte) (int, error) {
	select {
	case <-j.known:
	default:
		if j.line = append(j.line, p...); bytes.IndexByte(j.line, '\n') >= 0 {
			close(j.known)
		}
	}
	return len(p), nil
}

// get is the id, or "" before it is known.
func (j *jobID) get() string {
	select {
	case <-j.known:
		line, _, _ := bytes.Cut(j.line, []byte("\n"))
		id, _, _ := strings.Cut(string(line), ";")
		return strings.TrimSpace(id)
	default:
		return ""
	}
}

// followed is a directory with the files that a job writes to, in the directory
// where we are, which the nodes most likely share.
type followed struct{ dir string }

func newFollowed() (*followed, error) {
	dir, err := os.MkdirTemp(".", ".lfind-")
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, fault.Hint(
			fmt.Errorf("no directory for the job's output: %w", err),
			"change to a directory that the nodes share, or give --set output=FILE")
	}
	return &followed{dir}, nil
}

func (f *followed) path(name string) string { return filepath.Join(f.dir, name) }

// remove tries again for a while: a job that was cancelled while it began may still
// create its files, between the removal of the others and that of the directory.
func (f *followed) remove() {
	for range 20 {
		if os.RemoveAll(f.dir) == nil {
			return
		}
		time.Sleep(pollInterval / 2)
	}
}

// pollInterval is how often the files are checked.
const pollInterval = 100 * time.Millisecond

// follow copies what the job writes until ctx ends, and then the rest.
func (f *followed) follow(ctx context.Context, stdout, stderr io.Writer) {
	out, err := &reader{path: f.path("out"), to: stdout}, &reader{path: f.path("err"), to: stderr}
	defer out.close()
	defer err.close()
	for ctx.Err() == nil {
		out.copy()
		err.copy()
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
	out.copy()
	err.copy()
}

// reader copies a growing file.
type reader struct {
	path string
	file *os.File
	to   io.Writer
}

func (r *reader) copy() {
	if r.file == nil {
		r.file, _ = os.Open(r.path)
	}
	if r.file != nil {
		_, _ = io.Copy(r.to, r.file)
	}
}

func (r *reader) close() {
	if r.file != nil {
		r.file.Close()
	}
}
