package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
)

// records splits the output of "scontrol show", one-line or multi-line, into records. Every
// record starts with the key first at the beginning of a line; other lines belong to the record before them. scontrol prints free
// text between its keys, and marks no ends: a record in which a key that counts comes twice is not believed, nor is one that has
// line breaks and none of the keys whose text may have them.
type records struct {
	*values
	scan  *recordScanner
	first []byte
	empty bool // the listing may be empty, and so without a record that is understood

	line   []byte // first line of the next record, if ahead
	ahead  bool
	record []byte
	at     int      // line number of the record
	err    error    // of the listing
	bad    error    // of the record
	seen   [][]byte // its keys that count
	odd    func(error)
}

func newRecords(what, first string, r io.Reader, odd func(error)) *records {
	return &records{values: newValues(), scan: newRecordScanner("scontrol show "+what, r), first: []byte(first + "="), odd: odd}
}

// next reads the next record and reports whether there is one.
func (s *records) next() bool {
	s.record, s.seen, s.bad = s.record[:0], s.seen[:0], nil
	for s.err == nil {
		if s.ahead {
			s.record, s.at, s.ahead = append(s.record, s.line...), s.scan.line, false
		}
		line, err := s.scan.next("", 0)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.err = err
			break
		}
		switch {
		case len(bytes.TrimSpace(line)) == 0:
		case bytes.HasPrefix(line, s.first):
			s.line, s.ahead = append(s.line[:0], line...), true
			if len(s.record) > 0 {
				return true
			}
		case len(s.record) > 0:
			if s.bad == nil && line[0] > ' ' && !s.texts() {
				s.bad = s.scan.fail("%s: %q does not begin with %s", s.name(), clip(bytes.TrimSpace(line)), s.first)
			}
			if len(s.record)+len(line) > maxRecord {
				s.err = s.scan.fail("longer than %d bytes", maxRecord)
				break
			}
			s.record = append(append(s.record, '\n'), line...)
		case bytes.HasPrefix(line, []byte("No ")) &&
			(bytes.Contains(line, []byte(" in the system")) || bytes.Contains(line, []byte(" configured in Slurm"))):
		default:
			s.err = s.scan.fail("%q does not begin with %s", clip(bytes.TrimSpace(line)), s.first)
		}
	}
	return s.err == nil && len(s.record) > 0
}

// texts reports whether the record has a key with free text.
func (s *records) texts() bool {
	for _, key := range []string{"JobName=", "Reason=", "Comment=", "Extra="} {
		if bytes.Contains(s.record, []byte(key)) {
			return true
		}
	}
	return false
}

// name names the record in messages, without what a terminal would act on.
func (s *records) name() string {
	rest := string(clip(s.record[len(s.first):]))
	if end := strings.IndexFunc(rest, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }); end >= 0 {
		rest = rest[:end]
	}
	return fmt.Sprintf("%s%.60s", s.first, rest)
}

// title is the name with which the record begins. It may have blanks, and ends before the next key.
func (s *records) title() string {
	line, _, _ := bytes.Cut(s.record[len(s.first):], []byte("\n"))
	words := bytes.Fields(line)
	n := slices.IndexFunc(words, func(word []byte) bool { return bytes.IndexByte(word, '=') > 0 })
	if n < 0 {
		n = len(words)
	}
	return string(bytes.Join(words[:n], []byte(" ")))
}

// once notes a key that counts, and reports whether reading goes on: all is well, and the record has not had the key.
func (s *records) once(key []byte) bool {
	twice := slices.ContainsFunc(s.seen, func(k []byte) bool { return bytes.Equal(k, key) })
	s.check(!twice, key, nil, "it once: a text looks like output of Slurm")
	s.seen = append(s.seen, key)
	return s.bad == nil
}

// fields calls each with the key and the value of each KEY=VALUE word of the record, in order,
// until it returns false. Free text, such as a reason, is cut at its first blank, and its
// further words may look like other keys: return false there.
func (s *records) fields(each func(key, value []byte) bool) {
	fields(s.record, each)
}

func fields(record []byte, each func(key, value []byte) bool) {
	for i := 0; i < len(record); i++ {
		start, eq := i, -1
		for ; i < len(record) && record[i] > ' ' && record[i] != 0x7f; i++ {
			if record[i] == '=' && eq < 0 {
				eq = i
			}
		}
		if eq > start && !each(record[start:eq], record[eq+1:i]) {
			return
		}
	}
}

// check records an error if a value is not as expected.
func (s *records) check(ok bool, key, value []byte, want string) {
	if !ok && s.bad == nil {
		s.bad = parseError(s.scan.command, s.at, "%s: %s=%q: expected %s", s.name(), key, clip(value), want)
	}
}

// number parses a whole number; one that is not known is 0.
func (s *records) number(key, value []byte) int64 {
	if noNumber(string(value)) {
		return 0
	}
	n, ok := parseNumber(string(value))
	s.check(ok, key, value, "a number")
	return n
}

func (s *records) count(key, value []byte) Limit[int64] {
	n, ok := parseCount(string(value))
	s.check(ok, key, value, "a number or UNLIMITED")
	return n
}

func (s *records) limit(key, value []byte) time.Duration {
	d, ok := s.limits.get(value)
	s.check(ok, key, value, "a time limit")
	return d
}

func (s *records) time(key, value []byte) int64 {
	t, ok := s.stamp(value)
	s.check(ok, key, value, "a time")
	return t
}

func (s *records) counts(key, value []byte) TRES {
	t, ok := s.tres.get(value)
	s.check(ok, key, value, "a list of resources")
	return t
}

// show runs scontrol and parses what it shows.
func show[R any](ctx context.Context, c *Client, parse func(io.Reader, func(error)) ([]R, error), args ...string) ([]R, error) {
	return stream(ctx, c, func(r io.Reader) ([]R, error) { return parse(r, c.Odd) }, "scontrol", args...)
}

// readAll parses all records. One that cannot be read or believed costs itself, or the listing if that has to be whole. So do
// records of one name; nil: several records may have it.
func readAll[R any](s *records, name func(*R) string, read func(*R)) (all []R, err error) {
	err = readEach(s, read, func(r *R) { all = append(all, *r) })
	switch {
	case err != nil:
		return nil, err
	case name == nil:
		return all, nil
	}
	return sole(s.scan.command, all, func(r *R) string { return string(s.first) + name(r) }, s.odd)
}

// readEach is readAll for what is not kept: it calls each with one record after the other.
func readEach[R any](s *records, read, each func(*R)) error {
	var first error
	some, record := false, new(R)
	for s.next() {
		*record = *new(R)
		if read(record); s.bad == nil {
			some = true
			each(record)
			continue
		}
		if s.odd == nil {
			return s.bad
		}
		first = cmp.Or(first, s.bad)
		s.odd(s.bad)
	}
	if s.err == nil && !some && !s.empty { // nothing is understood
		return first
	}
	return s.err
}

// sole leaves out the records whose key another one has as well: a text has made one of them up, and nobody knows which. Each
// such key is reported once.
func sole[R any](command string, all []R, key func(*R) string, odd func(error)) ([]R, error) {
	count := make(map[string]int, len(all))
	var twice []string
	for i := range all {
		k := key(&all[i])
		if count[k]++; count[k] == 2 {
			twice = append(twice, k)
		}
	}
	if len(twice) == 0 {
		return all, nil
	}
	for _, k := range twice {
		err := parseError(command, len(all), "%.80q: %d records", k, count[k])
		if odd == nil {
			return nil, err
		}
		odd(err)
	}
	return slices.DeleteFunc(all, func(r R) bool { return count[key(&r)] > 1 }), nil
}
