package task

import (
	"bytes"
	"testing"
)

// Every line comes once and in order, as it was, and one that is too long is told.
func FuzzReadLines(f *testing.F) {
	f.Add([]byte("{\"action\":\"start\",\"id\":\"a\"}\n\n{\"event\":\"x\"}"), 0)
	f.Add([]byte("a\n"), MaxLine)
	f.Fuzz(func(t *testing.T, text []byte, padding int) {
		if padding > 0 {
			text = append(bytes.Repeat([]byte{'x'}, min(padding, MaxLine+2)), text...)
		}
		var got [][]byte
		long := 0
		if err := ReadLines(bytes.NewReader(text), func(l Line, err error) error {
			if err != nil && l.Action != nil {
				t.Errorf("an action with a problem: %v", err)
			}
			if len(l.Raw) > MaxLine {
				t.Errorf("a line of %d bytes", len(l.Raw))
			}
			if err != nil && l.Raw == nil {
				long++
			}
			got = append(got, bytes.Clone(l.Raw))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if long == 0 && !bytes.Equal(bytes.Join(got, []byte("\n")), bytes.TrimSuffix(text, []byte("\n"))) {
			t.Errorf("%.100q became %.100q", text, got)
		}
	})
}
