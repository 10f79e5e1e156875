package arkindex

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// writeJSON writes a JSON value so that a YAML 1.1 parser, with which workers read their
// configuration, reads the same value. YAML is said to contain JSON, but 1e-05 is a string there, and
// control characters are not allowed.
func writeJSON(b *bytes.Buffer, raw json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return fmt.Errorf("not JSON")
	}
	writeValue(b, value)
	return nil
}

func writeValue(b *bytes.Buffer, value any) {
	switch v := value.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		fmt.Fprintf(b, "%v", v)
	case json.Number:
		b.WriteString(yamlNumber(v.String()))
	case string:
		writeString(b, v)
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writeValue(b, item)
		}
		b.WriteByte(']')
	case map[string]any:
		b.WriteByte('{')
		for i, key := range sortedKeys(v) {
			if i > 0 {
				b.WriteString(", ")
			}
			writeString(b, key)
			b.WriteString(": ")
			writeValue(b, v[key])
		}
		b.WriteByte('}')
	}
}

// yamlNumber adds the point and the sign that YAML 1.1 requires in a number with an exponent.
func yamlNumber(s string) string {
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return s
	}
	mantissa, exponent := s[:i], s[i+1:]
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if exponent[0] != '+' && exponent[0] != '-' {
		exponent = "+" + exponent
	}
	return mantissa + "e" + exponent
}

// writeString writes a string in ASCII, except characters that JSON can only express with two
// escapes, which YAML would read as two characters.
func writeString(b *bytes.Buffer, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r >= 0x7f && r <= 0xffff:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
