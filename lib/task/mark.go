package task

import "strings"

// mark begins the comment of a job that runs tasks. The comment is what ties the two
// together, whatever is lost.
const mark = "PONOS_TASK="

// Marks is the comment of a job for one task, or of a job array for several: the element
// with index 0 is for the first one.
func Marks(ids ...ID) string {
	var b strings.Builder
	b.WriteString(mark)
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(id))
	}
	return b.String()
}

// Marked are the tasks that a comment names, in their order; nil: none, or not only ids.
func Marked(comment string) []ID {
	rest, ok := strings.CutPrefix(comment, mark)
	if !ok {
		return nil
	}
	ids := make([]ID, 0, 1+strings.Count(rest, ","))
	for text := range strings.SplitSeq(strings.TrimSpace(rest), ",") {
		id, err := ParseID(text)
		if err != nil {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// MarkOf is the comment that a job for one task would have, of the comment of a job array and
// the index of an element; "" if it names no such task.
func MarkOf(comment string, index int) string {
	rest, ok := strings.CutPrefix(comment, mark)
	for ; ok && index > 0; index-- {
		_, rest, ok = strings.Cut(rest, ",")
	}
	if !ok || index < 0 {
		return ""
	}
	id, _, _ := strings.Cut(rest, ",")
	return mark + strings.TrimSpace(id)
}
