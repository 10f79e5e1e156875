package input

import "testing"

func FuzzUnits(f *testing.F) {
	for _, seed := range []string{"90", "0.5", "1h30m", "2d12h", "1-12:00:00", "30:00", "1e400", "4G", "1.5T", "-1", "99999999999999999999P"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseDuration(text); err == nil && (d < 0 || d > 10*maxDuration) {
			t.Errorf("%q is %v", text, d)
		}
		if n, err := ParseSize(text); err == nil && n < 0 {
			t.Errorf("%q is %d bytes", text, n)
		}
	})
}
