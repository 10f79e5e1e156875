package entry

import (
	"bytes"
	"testing"
)

// output is what a log has from an offset on.
func output(t *testing.T, log []byte) []byte {
	t.Helper()
	var out []byte
	for line := range bytes.Lines(log) {
		p, ok := Parse(line)
		if !ok || p.At != int64(len(out)) || len(line) > 2*piece {
			t.Fatalf("%q at %d", line, len(out))
		}
		out = append(out, p.Text...)
	}
	return out
}

// Whatever is written, in whatever parts, arrives as it was.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("one\n\ntwo\rthree\x00\xff\n"), 3)
	f.Add(bytes.Repeat([]byte("grün"), 300), 7)
	f.Add([]byte("no end"), 100)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		var log bytes.Buffer
		w := NewFramer(&log)
		for rest := text; len(rest) > 0; {
			n := min(len(rest), 1+cut&0xff)
			_, _ = w.Write(rest[:n])
			if rest = rest[n:]; n%3 == 0 {
				_ = w.Flush()
			}
		}
		_ = w.Flush()
		if p, ok := Parse(text); ok && p.At < 0 {
			t.Errorf("%q is %+v", text, p)
		}
		if out := output(t, log.Bytes()); !bytes.Equal(out, text) || w.Written() != int64(len(text)) {
			t.Errorf("%q instead of %q, %d", out, text, w.Written())
		}
	})
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "\n", "@", "@1", "@x y", "@-1 y", "hello", "@1=%", "PONOS-EXIT n 0", "@ 1"} {
		if p, ok := Parse([]byte(bad)); ok {
			t.Errorf("%q is %+v", bad, p)
		}
	}
}

// A task that writes a line at a time writes 10,000 in far less than a second.
func BenchmarkFramer(b *testing.B) {
	var log bytes.Buffer
	w := NewFramer(&log)
	line := bytes.Repeat([]byte("x"), 80)
	line[79] = '\n'
	for b.Loop() {
		log.Reset()
		_, _ = w.Write(line)
	}
}
