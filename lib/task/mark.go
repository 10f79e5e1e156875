package task

import (
	"encoding/base64"
	"strings"

	"github.com/google/uuid"
)

// mark begins the comment of a job that runs tasks. The comment is what ties the two
// together, whatever is lost.
const mark = "PONOS_TASK="

// Of several ids, one that is a UUID is written as short and its bytes in base64url, and any
// other one behind between, unless it is the first. Neither is a character of an id.
const (
	between = ','
	short   = '.'
)

// A UUID takes 22 characters so, and not 36.
var encoding = base64.RawURLEncoding.Strict()

// Marks is the comment of a job for one task, or of a job array for several: the element
// with index 0 is for the first one.
func Marks(ids ...ID) string {
	if len(ids) == 1 {
		return mark + string(ids[0])
	}
	b := []byte(mark)
	for i, id := range ids {
		u, err := uuid.Parse(string(id))
		switch {
		case err == nil && u.String() == string(id):
			b = encoding.AppendEncode(append(b, short), u[:])
		case i > 0:
			b = append(append(b, between), id...)
		default:
			b = append(b, id...)
		}
	}
	return string(b)
}

// cutMark cuts the first id, as it is written, off what is behind the mark.
func cutMark(rest string) (written, after string, ok bool) {
	if rest == "" {
		return "", "", false
	}
	end := strings.IndexAny(rest[1:], string(between)+string(short)) + 1
	if end == 0 {
		return rest, "", true
	}
	written, after = rest[:end], rest[end:]
	if after[0] == between {
		after = after[1:]
		return written, after, after != "" && after[0] != short
	}
	return written, after, true
}

// marked is the task of an id as it is written.
func marked(written string) (ID, bool) {
	if written[0] != short {
		id, err := ParseID(written)
		return id, err == nil
	}
	b, err := encoding.DecodeString(written[1:])
	if err != nil {
		return "", false
	}
	u, err := uuid.FromBytes(b)
	return ID(u.String()), err == nil
}

// Marked are the tasks that a comment names, in their order; nil: none, or not only ids.
func Marked(comment string) []ID {
	rest, ok := strings.CutPrefix(strings.TrimSpace(comment), mark)
	if !ok {
		return nil
	}
	ids := make([]ID, 0, 1+strings.Count(rest, string(between))+strings.Count(rest, string(short)))
	for more := true; more; more = rest != "" {
		var written string
		if written, rest, ok = cutMark(rest); !ok {
			return nil
		}
		id, ok := marked(written)
		if !ok {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// MarkOf is the comment that a job for one task would have, of the comment of a job array and
// the index of an element; "" if it names no such task.
func MarkOf(comment string, index int) string {
	rest, ok := strings.CutPrefix(strings.TrimSpace(comment), mark)
	if !ok || index < 0 {
		return ""
	}
	var written string
	for ; index >= 0; index-- {
		if written, rest, ok = cutMark(rest); !ok {
			return ""
		}
	}
	id, ok := marked(written)
	if !ok {
		return ""
	}
	return mark + string(id)
}
