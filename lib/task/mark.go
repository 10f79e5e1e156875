package task

import (
	"encoding/base64"
	"strings"

	"github.com/google/uuid"
)

// mark begins the comment of a job that runs tasks. The comment connects the two even if all records
// are lost.
const mark = "PONOS_TASK="

// Of several ids, a UUID is written as short and its bytes in base64url, and any other id after
// between, unless it is the first. Neither character can be in an id.
const (
	between = ','
	short   = '.'
)

// A UUID takes 22 characters in this form instead of 36.
var encoding = base64.RawURLEncoding.Strict()

// Marks returns the comment of a job for one task, or of a job array for several: the element with
// index 0 is for the first one.
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

// cutMark cuts the first encoded id off the rest of a comment.
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

// marked decodes an id.
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

// Marked returns the tasks in a comment, in their order; nil if there are none, or if it also
// contains other text.
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

// MarkOf returns the comment that a job for one task would have, given the comment of a job array and
// the index of an element; "" if it has no such task.
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
