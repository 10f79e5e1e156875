// Command ponos-submit puts a task into a spool.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/app"
	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/place"
	"github.com/ponos-tools/ponos/lib/queue/spool"
	"github.com/ponos-tools/ponos/lib/task"
)

const name = "ponos-submit"

func main() { os.Exit(app.Main(run)) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:      name,
		Usage:     "put a task into the spool",
		ArgsUsage: "[[--] COMMAND [ARG...]]",
		StopAtArg: true,
		Flags:     slices.Concat(flags(), requestFlags()),
		Action:    func(c *cli.Context) error { return submit(c, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

func flags() []cli.Flag {
	return []cli.Flag{
		app.ConfigFlag(),
		&cli.StringFlag{Name: "spool", Aliases: []string{"s"}, Usage: "put it into the spool `DIR`; read no configuration"},
		&cli.StringFlag{Name: "repository", Aliases: []string{"r"}, Usage: "run code of the git repository `URL` (or path)"},
		&cli.StringFlag{Name: "revision", Usage: "check out `REV`: a commit, tag or branch (HEAD)"},
		&cli.StringFlag{Name: "directory", Aliases: []string{"d"}, Usage: "run code of `DIR`, as it is now"},
		&cli.StringFlag{Name: "image", Aliases: []string{"i"}, Usage: "run in the Docker image `IMAGE`, which needs mode vast"},
		&cli.StringFlag{Name: "worker", Aliases: []string{"w"}, Usage: "run the repository's worker `SLUG`"},
		&cli.BoolFlag{Name: "gpu", Aliases: []string{"g"}, Usage: "the task needs a GPU"},
		&cli.StringSliceFlag{Name: "after", Aliases: []string{"a"}, Usage: "start after task `ID`, with its artifacts; repeatable"},
		&cli.StringFlag{Name: "env-file", Aliases: []string{"e"}, Usage: "set the variables in `FILE`, a NAME=VALUE a line"},
		&cli.StringSliceFlag{Name: "file", Aliases: []string{"f"}, Usage: "give `FILE` to the task; repeatable"},
		&cli.StringFlag{Name: "slug", Aliases: []string{"n"}, Usage: "call the task `NAME` (the command's name)"},
		&cli.StringFlag{Name: "process", Usage: "group the task's artifacts under `ID`"},
		&cli.BoolFlag{Name: "wait", Usage: "follow the log, and exit with the task's status"},
		&cli.BoolFlag{Name: "list", Aliases: []string{"l"}, Usage: "list the tasks of the spool, and submit nothing"},
		&cli.StringFlag{Name: "stop", Usage: "stop task `ID`, and submit nothing"},
		app.JSONFlag(),
	}
}

func submit(c *cli.Context, stdout, stderr io.Writer) error {
	s, err := openSpool(c)
	if err != nil {
		return err
	}
	switch {
	case c.Bool("list"):
		return list(s, stdout, stderr, c.Bool("json"))
	case c.IsSet("stop"):
		id, err := task.ParseID(c.String("stop"))
		if err != nil {
			return fault.Errorf(fault.Usage, "--stop: %w", err)
		}
		if err := s.RequestStop(id); err != nil {
			return fmt.Errorf("task %s: %w", id, err)
		}
		return nil
	}
	e, err := entry(c, s)
	if err != nil {
		return err
	}
	if err := s.Add(e); err != nil {
		return err
	}
	if c.Bool("json") {
		err = app.PrintJSONLine(stdout, struct {
			ID   task.ID `json:"id"`
			Slug string  `json:"slug"`
		}{e.ID, e.Slug})
	} else {
		_, err = fmt.Fprintln(stdout, e.ID)
	}
	if err != nil || !c.Bool("wait") {
		return err
	}
	w := waiting{spool: s, id: e.ID, stop: "ponos-submit --stop " + string(e.ID), stderr: stderr}
	if c.IsSet("spool") {
		w.stop = fmt.Sprintf("ponos-submit --spool %s --stop %s", app.Quote(s.Dir), e.ID)
	}
	return w.wait(c.Context, stdout)
}

func openSpool(c *cli.Context) (*spool.Spool, error) {
	dir := c.String("spool")
	if dir == "" {
		cfg, err := config.Load(c.String("config"))
		if err != nil {
			return nil, err
		}
		if dir = cfg.SpoolDir(); dir == "" {
			return nil, fault.Hint(
				fault.Errorf(fault.Usage, "the queue of %q is %s, which takes no tasks from here", cfg.Path, cfg.Queue), "name a spool with --spool DIR")
		}
	} else {
		var err error
		if dir, err = config.Expand(dir); err != nil {
			return nil, err
		}
		// Where nothing is to be put, a misspelt name must not make a spool.
		if _, err := os.Stat(filepath.Join(dir, "new")); errors.Is(err, fs.ErrNotExist) && (c.Bool("list") || c.IsSet("stop")) {
			return nil, fault.Hint(fault.Errorf(fault.Usage, "--spool: %q is no spool", dir), "the first task that is submitted makes it")
		}
	}
	if c.Bool("list") || c.IsSet("stop") {
		return spool.Open(dir)
	}
	return spool.MakeOnce(place.Memory{Dir: config.PlacesDir()}, dir, clock.Now())
}

// entry makes the task that the command line describes.
func entry(c *cli.Context, s *spool.Spool) (spool.Entry, error) {
	id, err := uuid.NewV7() // grows with time, so that the oldest comes first
	if err != nil {
		return spool.Entry{}, err
	}
	e := spool.Entry{
		ID: task.ID(id.String()), Slug: c.String("slug"), Process: c.String("process"), Worker: c.String("worker"),
		Command: c.Args().Slice(), RequiresGPU: c.Bool("gpu"), Created: clock.Now().UTC(),
	}
	if e.Process != "" {
		if _, err := task.ParseID(e.Process); err != nil {
			return e, fault.Errorf(fault.Usage, "--process: %w", err)
		}
	}
	if err := requested(c, &e); err != nil {
		return e, err
	}
	if e.Image, err = image(c); err != nil {
		return e, err
	}
	if len(e.Command) == 0 && c.String("repository") == "" && c.String("directory") == "" && e.Image == "" {
		return e, fault.Hint(fault.Errorf(fault.Usage, "there is nothing to run"), `give a command behind "--", a --repository with a .arkindex.yml, or an --image`)
	}
	switch {
	case e.Worker != "" && len(e.Command) > 0:
		return e, fault.Errorf(fault.Usage, "--worker can't be combined with a command: it names one of the repository's")
	case e.Worker != "" && c.String("repository") == "" && c.String("directory") == "":
		return e, fault.Errorf(fault.Usage, "--worker needs --repository or --directory")
	}
	if e.Slug == "" {
		e.Slug = slug(e)
		if spool.CheckName(e.Slug) != nil { // the command's word can be anything
			e.Slug = "task"
		}
	} else if err := spool.CheckName(e.Slug); err != nil {
		return e, fault.Errorf(fault.Usage, "--slug: %w", err)
	}
	for _, parent := range c.StringSlice("after") {
		id, err := task.ParseID(parent)
		if err != nil {
			return e, fault.Errorf(fault.Usage, "--after: %w", err)
		}
		if _, err := s.Find(id); err != nil {
			return e, fault.Errorf(fault.Usage, "--after: the spool has no task %s", id)
		}
		e.After = append(e.After, id)
	}
	if path := c.String("env-file"); path != "" {
		if e.Env, err = readEnv(path); err != nil {
			return e, err
		}
	}
	for _, path := range c.StringSlice("file") {
		f, err := file(path)
		if err != nil {
			return e, err
		}
		e.Files = append(e.Files, f)
	}
	e.Source, err = source(c, s)
	return e, err
}

// image is what the task runs in. Nothing can be put into it.
func image(c *cli.Context) (string, error) {
	name := c.String("image")
	if !c.IsSet("image") {
		return "", nil
	}
	if name == "" || len(name) > 1024 || name[0] == '-' || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fault.Errorf(fault.Usage, "--image: %q is no image, such as registry.example.org/worker:1.2", task.Clean(name))
	}
	for _, other := range []string{"repository", "revision", "directory", "worker", "file"} {
		if c.IsSet(other) {
			return "", fault.Errorf(fault.Usage, "--image can't be combined with --%s: an image is run as it is", other)
		}
	}
	return name, nil
}

// list prints the tasks of a spool.
func list(s *spool.Spool, stdout, stderr io.Writer, asJSON bool) error {
	all, err := s.List()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(e spool.Entry) bool { return !e.State.Final() && clock.Since(e.Created) > unattended }) {
		if err := noAgent(s); err != nil {
			app.Report(stderr, name, fmt.Errorf("warning: %w", err))
		}
	}
	table := app.Table{Header: []string{"task", "name", "state", "submitted", "reason"}, Drop: []string{"submitted"}, Whole: []string{"task"}}
	for _, e := range all {
		if asJSON {
			e.Env = nil // holds secrets
			e.Source.Repository = task.CleanAddress(e.Source.Repository)
			if err := app.PrintJSONLine(stdout, e); err != nil {
				return err
			}
			continue
		}
		table.Add(string(e.ID), task.Clean(e.Slug), string(e.State), e.Created.Local().Format(time.DateTime), task.Clean(e.Reason))
	}
	return table.Print(stdout)
}
