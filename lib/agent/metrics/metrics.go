// Package metrics reads the numbers that a task writes of itself, such as the loss of a training.
//
// They are in the file metrics.json, a JSON object, or in metrics.jsonl, one object a line of which the later ones replace
// the values of the earlier ones; in the task's artifacts or in its working directory. Values of objects within an object
// have both names, as in "val.loss". NaN and Infinity are numbers, as Python writes them; other values are left out.
package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/task"
)

const (
	maxSize  = 1 << 20 // of a file; of a longer metrics.jsonl that much of its end is read
	maxNames = 100     // of a task
	maxName  = 64      // bytes
)

// Values are numbers by their names.
type Values map[string]float64

// Read reads the metrics of a task from its directories; later directories and metrics.jsonl replace values of earlier ones. The
// values come with an error too, those of the files that are right.
func Read(dirs ...string) (Values, error) {
	all := Values{}
	var errs []error
	for _, dir := range dirs {
		for _, f := range []struct {
			name  string
			parse func([]byte, bool) (Values, error)
		}{{"metrics.json", parseObject}, {"metrics.jsonl", parseLines}} {
			path := filepath.Join(dir, f.name)
			text, whole, err := read(path)
			if err == nil && text != nil {
				var values Values
				values, err = f.parse(text, whole)
				maps.Copy(all, values)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", path, err))
			}
		}
	}
	for len(all) > maxNames {
		delete(all, slices.Max(slices.Collect(maps.Keys(all))))
	}
	return all, errors.Join(errs...)
}

// read returns the last bytes of a file, and whether they are all of it; nil without a file. A task may have put anything in its
// place: a link, or a pipe that nobody writes to.
func read(path string) (text []byte, whole bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, errors.Unwrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if !info.Mode().IsRegular() {
		return nil, false, errors.New("not a regular file")
	}
	from := max(0, info.Size()-maxSize)
	text, err = io.ReadAll(io.NewSectionReader(f, from, maxSize))
	return text, from == 0, err
}

func parseObject(text []byte, whole bool) (Values, error) {
	if !whole {
		return nil, fmt.Errorf("it has more than %d bytes", maxSize)
	}
	found := Values{}
	return found, found.add(text)
}

// parseLines leaves out a last line without an end, which is being written.
func parseLines(text []byte, whole bool) (Values, error) {
	found := Values{}
	var first error
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if n == 1 && !whole || line[len(line)-1] != '\n' || len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := found.add(line); err != nil && first == nil {
			first = err
			if whole {
				first = fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	return found, first
}

// add adds the numbers of an object.
func (v Values) add(text []byte) error {
	var object map[string]any
	if err := json.Unmarshal(quoteNonFinite(text), &object); err != nil {
		return errors.New("not a JSON object")
	}
	v.take("", object)
	return nil
}

func (v Values) take(prefix string, object map[string]any) {
	for key, value := range object {
		name := prefix + key
		if len(name) > maxName || key == "" || !utf8.ValidString(name) || task.Clean(name) != name {
			continue
		}
		switch value := value.(type) {
		case float64:
			v[name] = value
		case string:
			if number, ok := nonFinite[value]; ok {
				v[name] = number
			}
		case map[string]any:
			v.take(name+".", value)
		}
	}
}

// nonFinite are the numbers that JSON does not have, in the words of Python and JavaScript.
var nonFinite = map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}

// quoteNonFinite makes strings of such words.
func quoteNonFinite(text []byte) []byte {
	var out []byte
	inString := false
	for i := 0; i < len(text); i++ {
		word := ""
		switch c := text[i]; {
		case inString && c == '\\' && i+1 < len(text):
			out = append(out, c)
			i++
		case c == '"':
			inString = !inString
		case !inString:
			for w := range nonFinite {
				if bytes.HasPrefix(text[i:], []byte(w)) {
					word = w
				}
			}
		}
		if word != "" {
			out = append(append(append(out, '"'), word...), '"')
			i += len(word) - 1
			continue
		}
		out = append(out, text[i])
	}
	return out
}

// Names are the names, sorted.
func (v Values) Names() []string { return slices.Sorted(maps.Keys(v)) }

// Exact is a value as a program reads it.
func Exact(value float64) string {
	if size := math.Abs(value); size != 0 && (size < 1e-6 || size >= 1e15) {
		return strconv.FormatFloat(value, 'g', -1, 64)
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}

// Short is a value as a person reads it: four digits, and whole numbers whole.
func Short(value float64) string {
	if value == math.Trunc(value) && math.Abs(value) < 1e9 {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return strconv.FormatFloat(value, 'g', 4, 64)
}

// MarshalJSON writes null for what JSON has no number for.
func (v Values) MarshalJSON() ([]byte, error) {
	finite := make(map[string]any, len(v))
	for name, value := range v {
		finite[name] = value
		if math.IsNaN(value) || math.IsInf(value, 0) {
			finite[name] = nil
		}
	}
	return json.Marshal(finite)
}
