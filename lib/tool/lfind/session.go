package lfind

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// session is one run of the tool.
type session struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	command        []string // behind "--" of lfind run
	slurm          *once    // what the cluster was asked
}

// set returns the context nearest to the command in which a flag was given, as
// flags may stand before the name of the command or behind it.
func set(c *cli.Context, name string) *cli.Context {
	for _, l := range c.Lineage() {
		if l != nil && l.Command != nil && l.IsSet(name) {
			return l
		}
	}
	return c
}

func text(c *cli.Context, name string) string     { return set(c, name).String(name) }
func boolean(c *cli.Context, name string) bool    { return set(c, name).Bool(name) }
func values(c *cli.Context, name string) []string { return set(c, name).StringSlice(name) }

func (s *session) note(c *cli.Context, format string, args ...any) {
	if !boolean(c, "quiet") {
		fmt.Fprintln(s.stderr, "lfind: "+app.Sanitize(fmt.Sprintf(format, args...)))
	}
}

func usage(format string, args ...any) error { return fault.Errorf(fault.Usage, format, args...) }

// load reads the file, and makes the search of it that the flags request.
func (s *session) load(c *cli.Context) (*file.File, *launcher.Search, error) {
	return s.loadFrom(c, boolean(c, "refresh"))
}

// loadFrom is load, with refresh without the cache.
func (s *session) loadFrom(c *cli.Context, refresh bool) (*file.File, *launcher.Search, error) {
	s.slurm = newOnce(command.System)
	w := launcher.World{Refresh: refresh, Run: s.slurm, Warn: func(text string) { s.note(c, "warning: %s", text) }}
	path := text(c, "config")
	f, err := clusters(c, path)
	if err != nil {
		return nil, nil, err
	}
	if f == nil {
		if f, err = w.Load(path); err != nil {
			return nil, nil, fileError(err)
		}
	}
	if boolean(c, "verbose") {
		for _, p := range f.Warnings {
			s.note(c, "%s", p)
		}
		if len(f.Entries) == 0 {
			s.note(c, "no launchers.yaml in %s: asking Slurm", strings.Join(w.Files(), ", "))
		}
	}
	search, err := w.Search(f)
	if err != nil {
		return nil, nil, err
	}
	search.AllowUnknown, search.Any = boolean(c, "allow-unknown"), boolean(c, "any")
	search.Tags = listed(values(c, "tags"))
	switch kind := text(c, "kind"); kind {
	case "", "slurm", "local":
		search.Kind = file.Kind(kind)
	default:
		return nil, nil, usage("--kind: %q is neither slurm nor local", kind)
	}
	if len(search.Tags) > 0 {
		s.checkTags(c, f, search.Tags)
	}
	return f, search, nil
}

// clusters are the launchers of --clusters, nil without it; path is the file that was named.
func clusters(c *cli.Context, path string) (*file.File, error) {
	names := listed(values(c, "clusters"))
	switch {
	case len(names) == 0:
		return nil, nil
	case path != "":
		return nil, usage("--clusters takes no file: %s", path)
	case slices.Contains(names, "all"):
		return nil, fault.Hint(usage("--clusters: name the clusters"), `"sacctmgr show clusters" lists them`)
	}
	return launcher.Clusters(names), nil
}

// listed are the names in lists that are separated by commas.
func listed(lists []string) []string {
	var names []string
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// checkTags warns of a tag that no launcher has: it is most likely misspelt.
func (s *session) checkTags(c *cli.Context, f *file.File, tags []string) {
	var known []string
	for _, e := range f.Entries {
		known = append(known, e.Tags...)
	}
	for _, tag := range tags {
		if slices.Contains(known, tag) {
			continue
		}
		hint := ""
		if near := spelling.Nearest(tag, known); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		} else if _, err := unit.Duration(tag); err == nil { // -t of sbatch
			hint = "; for a time limit, write duration=" + tag
		}
		s.note(c, "warning: no launcher has the tag %q%s", tag, hint)
	}
}

// fileError says what to do about a file that cannot be used.
func fileError(err error) error {
	var problems *file.Error
	if errors.As(err, &problems) && len(problems.Problems) > 0 {
		return fault.Hint(err, fmt.Sprintf("%q reports all problems", "lfind check "+shell.Quote(problems.Problems[0].File)))
	}
	var missing *fs.PathError
	if errors.As(err, &missing) && missing.Path != "" && strings.Trim(missing.Path, "0123456789") == "" { // -c of sbatch
		return fault.Hint(err, "-c is --config; for CPUs, write cpu(cores="+missing.Path+")")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Hint(err,
			"without --config and LFIND_CONFIG, lfind reads launchers.yaml in ~/.config/ponos, and queries Slurm if there is none")
	}
	return err
}

// maxRequest limits a request that is read from a file.
const maxRequest = 1 << 20

// request reads the requests that the arguments name.
func (s *session) request(c *cli.Context) (request.Request, error) {
	args := c.Args().Slice()
	if c.Command.Name != "run" { // "run" was the value of a flag
		args = append(args, s.command...)
	}
	if len(args) == 0 && text(c, "learn") != "" {
		r := request.Request{Alternatives: []request.Alternative{{}}} // all of it is learned
		return r, s.learn(c, &r)
	}
	if len(args) == 0 {
		if app.IsTerminal(s.stdin) {
			return request.Request{}, fault.Hint(usage("a request is missing"),
				`for example: lfind 'cuda(mem=14G) * 2 & duration=4h'; see "lfind --help"`)
		}
		args = []string{"-"}
	}
	if slices.Contains(args, "") {
		return request.Request{}, usage("empty request")
	}
	var all []request.Request
	for i, arg := range args {
		name := "request"
		if len(args) > 1 {
			name = fmt.Sprintf("request %d", i+1)
		}
		path, isFile := strings.CutPrefix(arg, "@")
		if isFile || arg == "-" {
			text, err := s.readRequest(path, arg == "-")
			if err != nil {
				return request.Request{}, err
			}
			if name = path; arg == "-" {
				name = "stdin"
			}
			arg = text
		}
		r, err := request.Parse(arg)
		if err != nil {
			var e *request.Error
			if errors.As(err, &e) {
				e.Name = name
				err = fault.Hint(err, e.Hint)
			}
			return request.Request{}, fault.Wrap(fault.Usage, err)
		}
		for _, w := range r.Warnings {
			s.note(c, "warning: %s", strings.Replace(w.String(), "request", name, 1))
		}
		all = append(all, r)
	}
	r := request.Join(all...)
	return r, s.learn(c, &r)
}

func (s *session) readRequest(path string, stdin bool) (string, error) {
	in := s.stdin
	if !stdin {
		f, err := os.Open(path)
		if err != nil {
			return "", fault.Wrap(fault.Usage, err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxRequest))
	return string(text), fault.Wrap(fault.Usage, err)
}

// override sets the options that --set names.
func override(c *cli.Context, o *sbatch.Options) error {
	for _, setting := range values(c, "set") {
		name, value, hasValue := strings.Cut(setting, "=")
		name = strings.TrimLeft(name, "-")
		if !isOption(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fault.Hint(usage("--set: %q is not NAME=VALUE", setting), "for example --set nodes=2")
		}
		set, err := sbatch.Parse(setting)
		switch {
		case hasValue && value == "" || set.Off:
			o.Set(name, "")
		case err != nil:
			return usage("--set: %v", err)
		case set.Value == "":
			o.SetFlag(name)
		default:
			o.Set(name, set.Value)
		}
	}
	return nil
}

// isOption reports whether a name can be that of a long option.
func isOption(name string) bool {
	if len(name) < 2 || name[0] == '-' || name[0] == '_' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// noteUnknown says what is not known of the nodes of an answer.
func (s *session) noteUnknown(c *cli.Context, a *launcher.Answer) {
	for _, text := range a.Unknown {
		s.note(c, "note: used although not known to match: %s", text)
	}
	for _, text := range a.Notes {
		s.note(c, "note: %s", text)
	}
}
