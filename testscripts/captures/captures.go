// Package captures reads and writes what commands of Slurm printed once, by the names of the columns. The
// file of a capture, NAME.table, is CSV with bars: a header of the names, as the query has them (tres-alloc
// of squeue, JobIDRaw of sacct, %i of sprio), and the rows. A capture answers each query for some of its
// columns, in the order and with the delimiters of that query.
//
// A name in the header may be followed by "=" and a text: the column was not captured, the rows do not
// have it, and a replay prints the text.
package captures

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Extension is that of the files of captures.
const Extension = ".table"

// Captured returns the names of the columns that the rows of a capture have.
func Captured(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, names, _, err := open(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return names, nil
}

// open reads the header: names of the columns that the rows have, and texts of those that were not captured.
func open(r io.Reader) (rows *csv.Reader, names []string, absent map[string]string, err error) {
	rows = csv.NewReader(r)
	rows.Comma, rows.ReuseRecord, rows.FieldsPerRecord = '|', true, -1
	header, err := rows.Read()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("header: %w", err)
	}
	absent = map[string]string{}
	for _, word := range header {
		if name, text, ok := strings.Cut(word, "="); ok {
			absent[name] = text
		} else {
			names = append(names, name)
		}
	}
	rows.FieldsPerRecord = len(names)
	return rows, names, absent, nil
}

// Replay prints the capture in a file as a command would for these arguments. Of squeue's rows only those of
// --states are printed. A column that the capture does not name is an error.
func Replay(w io.Writer, file, command string, args ...string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return ReplayText(w, file, f, command, args...)
}

// ReplayText replays a capture that is read from r; file is its name for messages.
func ReplayText(w io.Writer, file string, r io.Reader, command string, args ...string) error {
	asked, err := parseQuery(command, args)
	if err != nil {
		return err
	}
	rows, names, absent, err := open(r)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	index := make([]int, len(asked.columns))
	for i, c := range asked.columns {
		index[i] = slices.Index(names, c.name)
		if _, ok := absent[c.name]; index[i] < 0 && !ok {
			if whole, err := filepath.Abs(file); err == nil {
				file = whole
			}
			return fmt.Errorf("%s has no column %s, which %s is asked for. Capture it again: go run ./testscripts/captures/record %[1]s\n"+
				"For tests that do not look at the column, append %[2]s=TEXT to the header, with what %[3]s prints of a row without a value", file, c.name, command)
		}
	}
	state := slices.Index(names, "State")
	for {
		row, err := rows.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if asked.states != nil && state >= 0 && !slices.Contains(asked.states, row[state]) {
			continue
		}
		for i, c := range asked.columns {
			text := absent[c.name]
			if index[i] >= 0 {
				text = row[index[i]]
			}
			if _, err := io.WriteString(w, text+c.end); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
}

// Record writes the file of a capture: what a command printed for these arguments.
func Record(file string, printed []byte, command string, args ...string) error {
	asked, err := parseQuery(command, args)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	table := csv.NewWriter(&text)
	table.Comma = '|'
	row := make([]string, len(asked.columns))
	for i, c := range asked.columns {
		row[i] = c.name
	}
	_ = table.Write(row) // into memory
	for rest := string(printed); rest != ""; {
		for i, c := range asked.columns {
			end := c.end
			if i == len(row)-1 {
				end += "\n"
			}
			var found bool
			if row[i], rest, found = strings.Cut(rest, end); !found {
				return fmt.Errorf("%s printed a row without the column %s: %.200q", command, c.name, row[i])
			}
		}
		_ = table.Write(row)
	}
	table.Flush()
	// What cannot be replayed is not kept.
	var again bytes.Buffer
	if err := ReplayText(&again, file, bytes.NewReader(text.Bytes()), command, args...); err != nil {
		return err
	}
	if !bytes.Equal(again.Bytes(), printed) {
		return fmt.Errorf("%s: a replay of %q would print something else", file, text.Bytes())
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}
