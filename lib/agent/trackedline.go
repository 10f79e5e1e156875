package agent

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// parseTracked reads a line of the cache. Each turn reads one for each of many thousand tasks, and
// scanTracked can read most of them.
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
	return k, err == nil && k.ID != ""
}

// scanTracked reads a JSON object as encoding/json writes a Tracked, but without escapes in strings.
// The strings that it returns are slices of the object. It reports false for any other input.
func scanTracked(object string) (k Tracked, ok bool) {
	rest, ok := strings.CutPrefix(object, "{")
	for more := true; ok && more; {
		var name, text string
		var number int64
		var is bool
		if name, rest, ok = scanString(rest); !ok {
			return k, false
		}
		if rest, ok = strings.CutPrefix(rest, ":"); !ok {
			return k, false
		}
		switch name {
		case "attempt", "log_size", "output", "restarts":
			number, rest, ok = scanNumber(rest)
		case "reassigned", "lost":
			rest, is = strings.CutPrefix(rest, "true")
			ok = is
		default:
			text, rest, ok = scanString(rest)
		}
		if !ok {
			return k, false
		}
		switch name {
		case "id":
			k.ID = task.ID(text)
		case "slug":
			k.Slug = text
		case "process":
			k.Process = text
		case "job":
			k.Job = text
		case "attempt":
			k.Attempt = int(number)
		case "submitted":
			k.Submitted, ok = scanTime(text)
		case "since":
			k.Since, ok = scanTime(text)
		case "reported":
			k.Reported = task.State(text)
		case "log_size":
			k.LogSize = number
		case "output":
			k.Output = number
		case "restarts":
			k.Restarts = int(number)
		case "reassigned":
			k.Reassigned = is
		case "lost":
			k.Lost = is
		default:
			return k, false
		}
		if more = strings.HasPrefix(rest, ","); more {
			rest = rest[1:]
		}
	}
	return k, ok && rest == "}" && k.ID != ""
}

// scanString reads a string without escapes.
func scanString(s string) (text, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", "", false
	}
	end := strings.IndexByte(s[1:], '"')
	if end < 0 {
		return "", "", false
	}
	text = s[1 : 1+end]
	for i := range len(text) {
		// Bytes above ASCII may be invalid UTF-8, which encoding/json replaces.
		if c := text[i]; c < ' ' || c >= 0x7f || c == '\\' {
			return "", "", false
		}
	}
	return text, s[1+end+1:], true
}

// scanNumber reads a natural number.
func scanNumber(s string) (n int64, rest string, ok bool) {
	digits := 0
	for digits < len(s) && digits < 18 && '0' <= s[digits] && s[digits] <= '9' {
		n = 10*n + int64(s[digits]-'0')
		digits++
	}
	leadingZero := digits > 1 && s[0] == '0'
	return n, s[digits:], digits > 0 && !leadingZero
}

func scanTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, s)
	return t, err == nil
}
