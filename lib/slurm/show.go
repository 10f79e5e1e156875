package slurm

import (
	"strings"
)

// eachRecord takes the output of "scontrol show" apart, be it of one line for each
// record or of several: it calls each with the text of one record, from its first
// key on, and with the number of its first line, of which there were some before.
// Every record begins with first, such as "NodeName=", at the beginning of a line.
func eachRecord(command string, before int, text, first string, each func(line int, record string) error) error {
	start, startLine, line := -1, 0, before
	for pos := 0; pos < len(text); {
		line++
		end := pos + strings.IndexByte(text[pos:], '\n') + 1
		if end == pos {
			end = len(text)
		}
		switch row := text[pos:end]; {
		case strings.HasPrefix(row, first):
			if start >= 0 {
				if err := each(startLine, text[start:pos]); err != nil {
					return err
				}
			}
			start, startLine = pos, line
		case row[0] == ' ' || row[0] == '\t' || strings.TrimSpace(row) == "":
			// It continues the record, or ends it.
		case strings.HasPrefix(row, "No nodes in the system"), strings.HasPrefix(row, "No partitions in the system"):
		default:
			return parseError(command, line, "%.60q does not begin with %s", strings.TrimSpace(row), first)
		}
		pos = end
	}
	if start >= 0 {
		return each(startLine, text[start:])
	}
	return nil
}

// eachField calls each with the key and the value of each KEY=VALUE word of a
// record, in their order, until it returns false. Values of free text, such as a
// reason, are cut at the first blank; they come last, so that the first of equal
// keys is the true one.
func eachField(record string, each func(key, value string) bool) {
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

// orEmpty turns Slurm's words for nothing into "".
func orEmpty(value string) string {
	switch value {
	case "(null)", "N/A", "n/a", "none", "None", "NONE":
		return ""
	}
	return value
}

// commaList splits at commas; nothing and ALL are nil.
func commaList(value string) []string {
	if value = orEmpty(value); value == "" || strings.EqualFold(value, "ALL") {
		return nil
	}
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
}
