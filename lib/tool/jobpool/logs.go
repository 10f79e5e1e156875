package jobpool

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/pool/worker"
)

// piece is one stream of one attempt.
type piece struct {
	seq     int64
	attempt int
	stderr  bool
	file    string
	offset  int64
	length  int64 // -1: all of the file
}

var logName = regexp.MustCompile(`^(\d+)(?:\.(\d+))?\.(out|err)$`)

// findLogs returns what there is, the last attempt of each task, by number.
func findLogs(dir string) ([]piece, error) {
	var all []piece
	indexes, err := filepath.Glob(filepath.Join(dir, "*.idx"))
	if err != nil {
		return nil, err
	}
	for _, name := range indexes {
		more, err := readIndex(name)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*", "*"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		m := logName.FindStringSubmatch(filepath.Base(name))
		if m == nil {
			continue
		}
		seq, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			continue
		}
		attempt := 1
		if m[2] != "" {
			if attempt, err = strconv.Atoi(m[2]); err != nil {
				continue
			}
		}
		all = append(all, piece{seq, attempt, m[3] == "err", name, 0, -1})
	}
	last := map[int64]int{}
	for _, p := range all {
		last[p.seq] = max(last[p.seq], p.attempt)
	}
	all = slices.DeleteFunc(all, func(p piece) bool { return p.attempt < last[p.seq] })
	slices.SortStableFunc(all, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(strconv.FormatBool(a.stderr), strconv.FormatBool(b.stderr)))
	})
	return all, nil
}

func readIndex(name string) ([]piece, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []piece
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var i worker.Index
		if err := json.Unmarshal(lines.Bytes(), &i); err != nil {
			return nil, fmt.Errorf("%s:%d: not an entry of an index", name, n)
		}
		out = append(out, piece{i.Seq, int(i.Attempt), i.Stream == "err", strings.TrimSuffix(name, "idx") + i.Stream, i.Offset, i.Length})
	}
	return out, lines.Err()
}

func (p *piece) print(w io.Writer) error {
	f, err := os.Open(p.file)
	if err != nil {
		return err
	}
	defer f.Close()
	length := p.length
	if length < 0 {
		length = 1 << 62
	}
	_, err = io.Copy(w, io.NewSectionReader(f, p.offset, length))
	return err
}
