package input

import (
	"fmt"
	"hash/maphash"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// results says where the files of a task are: in a directory DIR/1/ARG1/2/ARG2 with
// the column's name or number before each argument, or where a template says.
type results struct {
	dir   string
	names []string
	path  *template
	// taken are the tasks whose files have a name, by its hash: there may be millions.
	taken map[uint64]int64
	seed  maphash.Seed
}

func newResults(text string, s syntax, names []string) (*results, error) {
	for _, ext := range []string{".csv", ".tsv", ".json"} {
		if strings.HasSuffix(text, ext) {
			return nil, fault.Hint(fault.Errorf(fault.Usage, "--results: %q: tables are not written", text), "name a directory")
		}
	}
	t, err := newText(text, s)
	if err != nil {
		return nil, err
	}
	if t.slot {
		return nil, fault.Errorf(fault.Usage, "--results: {%%} is not known before a task starts")
	}
	for _, p := range t.words[0] {
		if p.place != nil {
			return &results{path: t}, nil
		}
	}
	return &results{dir: filepath.Clean(text), names: names}, nil
}

// newLineResults is for tasks that have no arguments: those of a list of commands have
// numbers, and JSON objects have ids, which are the numbers of those that have none.
func newLineResults(text string, json bool) (*results, error) {
	s := syntax{}
	if json {
		s.names = []string{"id"}
	}
	r, err := newResults(text, s, s.names)
	if err != nil {
		return nil, err
	}
	if r.path == nil {
		return newResults(strings.TrimRight(text, "/")+"/{#}/", s, nil)
	}
	for _, p := range r.path.words[0] {
		if p.place != nil && p.place.kind == arguments && (!json || p.place.pos != 1) {
			return nil, fault.Hint(
				fault.Errorf(fault.Usage, "--results: %q: a task has no arguments", text),
				"use {#}, or {id} with --jsonl")
		}
	}
	return r, nil
}

// files are the names for standard output, standard error, and the task's number.
func (r *results) files(fields []string, seq int64) ([]string, error) {
	var dir string
	if r.path != nil {
		safe := slices.Clone(fields)
		for i, f := range safe {
			if f == "." || f == ".." || strings.HasPrefix(f, "../") || strings.HasSuffix(f, "/..") || strings.Contains(f, "/../") {
				safe[i] = component(f)
			}
		}
		text, _, err := r.path.fill(safe, seq)
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(text, "/") {
			return []string{text, text + ".err", text + ".seq"}, nil
		}
		dir = text
	} else {
		parts := []string{r.dir}
		for i, f := range fields {
			name := strconv.Itoa(i + 1)
			if i < len(r.names) {
				name = component(r.names[i])
			}
			parts = append(parts, name, component(f))
		}
		dir = filepath.Join(parts...)
	}
	return []string{filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr"), filepath.Join(dir, "seq")}, nil
}

// claim returns the files of a task, of which no other task may have the first two: its
// output would be lost.
func (r *results) claim(fields []string, seq int64) ([]string, error) {
	files, err := r.files(fields, seq)
	if err != nil {
		return nil, err
	}
	if r.taken == nil {
		r.taken, r.seed = map[uint64]int64{}, maphash.MakeSeed()
	}
	keys := [2]uint64{}
	for i := range keys {
		keys[i] = maphash.String(r.seed, filepath.Clean(files[i]))
		if other, ok := r.taken[keys[i]]; ok {
			return nil, fmt.Errorf("--results: %s is the file of task %d; put {#} into the name", files[i], other)
		}
	}
	for _, key := range keys {
		r.taken[key] = seq
	}
	return files, nil
}

// component makes a file name of an argument.
func component(s string) string {
	if s == "." || s == ".." {
		return `\` + s
	}
	return strings.NewReplacer(`\`, `\\`, "/", `\_`, "\t", `\t`).Replace(s)
}
