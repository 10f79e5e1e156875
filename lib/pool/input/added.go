package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Addition are tasks for a run that has begun.
type Addition struct {
	Text wire.Text            `json:"text"`            // as the input of a run: one command per line
	JSON bool                 `json:"jsonl,omitempty"` // or one object per line
	Set  map[string]wire.Text `json:"set,omitempty"`   // what they need, by the names of [Set]
	// After are ids or numbers of the tasks that must have succeeded before these start.
	After []string `json:"after,omitempty"`
}

// Tasks is where tasks come from.
type Tasks interface {
	// Next returns the next task; io.EOF at the end. After a *[BadTask] it can be called again.
	Next() (*pool.Task, error)
	// Ready reports whether the next task is there without waiting for it.
	Ready() bool
}

// Growing are the tasks of an input, followed by those that were added to the run. The latter are in
// a file, one [Addition] per line, so that they have the same numbers when the run is resumed. After
// io.EOF, Next continues if more were added.
type Growing struct {
	input  Tasks // nil: at its end
	name   string
	base   pool.Spec
	shell  bool
	offset int64
	last   int64 // number of the last task
	added  *Reader
	before int64 // number of the task before those of added
	after  []string
}

// Grow lets an input grow by what is added in a file.
func Grow(t Tasks, name string, base pool.Spec, shell bool) *Growing {
	return &Growing{input: t, name: name, base: base, shell: shell}
}

// Ready implements [Tasks].
func (g *Growing) Ready() bool {
	if g.input != nil {
		return g.input.Ready()
	}
	return g.added != nil
}

// Next implements [Tasks].
func (g *Growing) Next() (*pool.Task, error) {
	for {
		from := g.input
		if from == nil {
			if g.added == nil {
				if err := g.open(); err != nil {
					return nil, err
				}
			}
			from = g.added
		}
		t, err := from.Next()
		var bad *BadTask
		switch {
		case errors.Is(err, io.EOF):
			g.input, g.added = nil, nil
			continue
		case errors.As(err, &bad):
			bad.Seq += g.before
			g.last = bad.Seq
		case err == nil:
			t.Seq += g.before
			g.last = t.Seq
			if g.added != nil && len(g.after) > 0 {
				if t.Extra == nil {
					t.Extra = &pool.Extra{}
				}
				t.Extra.After = append(t.Extra.After, g.after...)
			}
		}
		return t, err
	}
}

// open reads the next addition of the file; io.EOF if there is none.
func (g *Growing) open() error {
	f, err := os.Open(g.name)
	if errors.Is(err, os.ErrNotExist) {
		return io.EOF
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, g.offset, maxAddition))
	if err != nil {
		return err
	}
	line, _, whole := bytes.Cut(b, []byte("\n"))
	if !whole {
		return io.EOF // it is being written, or was cut off by a full disk
	}
	a := new(Addition)
	if err := json.Unmarshal(line, a); err != nil {
		return fmt.Errorf("%s: offset %d: %w", g.name, g.offset, err)
	}
	if g.added, err = a.open(g.base, g.shell); err != nil {
		return fmt.Errorf("%s: offset %d: %w", g.name, g.offset, err)
	}
	g.after = a.After
	g.offset += int64(len(line)) + 1
	g.before = g.last
	return nil
}

// maxAddition limits the size of one addition in the file.
const maxAddition = 64 << 20

func (a *Addition) open(base pool.Spec, shell bool) (*Reader, error) {
	for name, value := range a.Set {
		if err := Set(&base, name, string(value)); err != nil {
			return nil, err
		}
	}
	return Open(strings.NewReader(string(a.Text)), nil, Options{JSON: a.JSON, Base: base, Shell: shell, Name: "standard input"})
}

// Add appends tasks to the file, and returns how many. If one of them cannot be read, none
// is added.
func (g *Growing) Add(a *Addition) (int, error) {
	in, err := a.open(g.base, g.shell)
	if slices.Contains(a.After, "") {
		err = errors.New("after: the task is not named")
	}
	if err != nil {
		return 0, fault.Wrap(fault.Usage, err)
	}
	count := 0
	for {
		_, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fault.Wrap(fault.Usage, err)
		}
		count++
	}
	if count == 0 {
		return 0, nil
	}
	b, err := json.Marshal(a)
	if err != nil {
		return 0, err
	}
	if len(b) >= maxAddition {
		return 0, fault.Errorf(fault.Usage, "too many tasks at a time: at most %d MiB", maxAddition>>20)
	}
	return count, appendLine(g.name, b)
}

// appendLine appends a line to a file and flushes it to disk. A partial line is removed.
func appendLine(name string, line []byte) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Size() > 0 {
		err = dropTorn(f, st.Size())
		st, _ = f.Stat()
	}
	if err == nil {
		if _, err = f.Write(append(line, '\n')); err == nil {
			err = f.Sync()
		}
		if err != nil {
			err = errors.Join(err, f.Truncate(st.Size()))
		}
	}
	return errors.Join(err, f.Close())
}

// dropTorn removes what follows the last complete line, which was never acknowledged.
func dropTorn(f *os.File, size int64) error {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil || b[len(b)-1] == '\n' {
		return err
	}
	return f.Truncate(int64(bytes.LastIndexByte(b, '\n') + 1))
}
