package agent

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// parseTracked reads a line of the cache. Each turn reads one for each of many thousand tasks: with
// encoding/json alone, a quiet turn over 10,000 tasks takes a quarter longer.
func parseTracked(line string) (Tracked, bool) {
	object, ok := strings.CutSuffix(line, "\n")
	if !ok {
		return Tracked{}, false // cut off
	}
	if k, ok := scanTracked(object); ok {
		return k, true
	}
	var k Tracked
	err := json.Unmarshal([]byte(object), &k)
	return k, err == nil && k.Task != ""
}

// scanTracked reads a JSON object as encoding/json writes a Tracked, but without escapes in strings.
// The strings that it returns are slices of the object. It reports false for any other input.
func scanTracked(object string) (k Tracked, ok bool) {
	s := scanner{rest: object, ok: true}
	s.object(func(name string) {
		switch name {
		case "id":
			k.Task = task.ID(s.text())
		case "slug":
			k.Label = s.text()
		case "process":
			k.Process = s.text()
		case "job":
			k.Job = s.text()
		case "attempt":
			k.Attempt = int(s.number())
		case "before":
			k.Before = s.jobs()
		case "submitted":
			k.Submitted = s.time()
		case "since":
			k.Since = s.time()
		case "asked":
			k.Asked = s.time()
		case "lost":
			k.Lost = s.true()
		case "missing":
			k.Missing = s.absence()
		case "absent":
			k.Absent = s.absence()
		case "unaccounted":
			k.Unaccounted = s.absence()
		case "reported":
			k.Reported = task.State(s.text())
		case "log_size":
			k.LogSize = s.number()
		case "output":
			k.Output = s.number()
		case "restarts":
			k.Restarts = int(s.number())
		case "reassigned":
			k.Reassigned = s.true()
		case "rules":
			k.Rules = s.text()
		default:
			s.ok = false
		}
	})
	return k, s.ok && s.rest == "" && k.Task != ""
}

// scanner reads JSON without blanks.
type scanner struct {
	rest string
	ok   bool // so far
}

// take takes a text that must come next.
func (s *scanner) take(text string) {
	rest, ok := strings.CutPrefix(s.rest, text)
	s.rest, s.ok = rest, s.ok && ok
}

// object reads an object whose members are read by a function.
func (s *scanner) object(member func(name string)) {
	s.take("{")
	for more := true; more && s.ok; {
		name := s.text()
		s.take(":")
		member(name)
		if more = strings.HasPrefix(s.rest, ","); more {
			s.rest = s.rest[1:]
		}
	}
	s.take("}")
}

func (s *scanner) absence() (a task.Absence) {
	s.object(func(name string) {
		switch name {
		case "since":
			a.Since = s.time()
		case "last":
			a.Last = s.time()
		case "misses":
			a.Misses = int(s.number())
		default:
			s.ok = false
		}
	})
	return a
}

func (s *scanner) jobs() runner.Jobs {
	var all []string
	s.take("[")
	for more := s.ok; more && s.ok; {
		all = append(all, s.text())
		if more = strings.HasPrefix(s.rest, ","); more {
			s.rest = s.rest[1:]
		}
	}
	s.take("]")
	return runner.Jobs(strings.Join(all, ","))
}

// text reads a string without escapes.
func (s *scanner) text() string {
	s.take(`"`)
	text, rest, ok := strings.Cut(s.rest, `"`)
	for i := range len(text) {
		// Bytes above ASCII may be invalid UTF-8, which encoding/json replaces.
		if c := text[i]; c < ' ' || c >= 0x7f || c == '\\' {
			ok = false
		}
	}
	s.rest, s.ok = rest, s.ok && ok
	return text
}

// number reads a natural number.
func (s *scanner) number() (n int64) {
	digits := 0
	for digits < len(s.rest) && digits < 18 && '0' <= s.rest[digits] && s.rest[digits] <= '9' {
		n = 10*n + int64(s.rest[digits]-'0')
		digits++
	}
	s.ok = s.ok && digits > 0 && (digits == 1 || s.rest[0] != '0')
	s.rest = s.rest[digits:]
	return n
}

func (s *scanner) true() bool {
	s.take("true")
	return true
}

func (s *scanner) time() time.Time {
	t, err := time.Parse(time.RFC3339, s.text())
	s.ok = s.ok && err == nil
	return t
}
