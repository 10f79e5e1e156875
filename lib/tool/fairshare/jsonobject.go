package fairshare

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// jsonObject appends the members of JSON objects.
type jsonObject struct {
	b    []byte
	more bool // a member was written to the object that is open
}

func (o *jsonObject) open() { o.b, o.more = append(o.b, '{'), false }

func (o *jsonObject) close() { o.b, o.more = append(o.b, '}'), true }

func (o *jsonObject) key(name string) {
	if o.more {
		o.b = append(o.b, ',')
	}
	o.more = true
	o.quote(name)
	o.b = append(o.b, ':')
}

func (o *jsonObject) null(name string) {
	o.key(name)
	o.b = append(o.b, "null"...)
}

func (o *jsonObject) bool(name string, v bool) {
	o.key(name)
	o.b = strconv.AppendBool(o.b, v)
}

func (o *jsonObject) number(name string, v float64) {
	o.key(name)
	if math.IsNaN(v) || math.IsInf(v, 0) { // JSON has no such numbers
		o.b = append(o.b, "null"...)
		return
	}
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		o.b = strconv.AppendInt(o.b, int64(v), 10)
		return
	}
	o.b = strconv.AppendFloat(o.b, v, 'f', -1, 64)
}

func (o *jsonObject) text(name, v string) {
	o.key(name)
	o.quote(v)
}

// optional writes null for an empty text.
func (o *jsonObject) optional(name, v string) {
	if v == "" {
		o.null(name)
		return
	}
	o.text(name, v)
}

// stamp writes seconds since 1970 as RFC 3339, and 0 as null.
func (o *jsonObject) stamp(name string, unix int64) {
	if unix == 0 {
		o.null(name)
		return
	}
	o.key(name)
	o.b = append(o.b, '"')
	o.b = time.Unix(unix, 0).AppendFormat(o.b, time.RFC3339)
	o.b = append(o.b, '"')
}

func (o *jsonObject) quote(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // of a string it cannot fail
			o.b = append(o.b, text...)
			return
		}
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, s...)
	o.b = append(o.b, '"')
}
