package clock

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	start := time.Date(2026, 3, 29, 0, 59, 0, 0, time.UTC)
	for _, test := range []struct {
		value, day string
		want       time.Duration
	}{
		{"", "", 0},
		{"+960h", "", 40 * 24 * time.Hour},
		{"-36h", "", -36 * time.Hour},
		{"2026-03-29T01:00:00Z", "", time.Minute},
		{"2026-03-29T01:00:00+02:00", "", time.Minute - 2*time.Hour},
		{"", "+960h", 40 * 24 * time.Hour},
		{"+1m", "+960h", 40*24*time.Hour + time.Minute},
		{"2026-03-29T01:00:00Z", "+960h", time.Minute},
		{"+1m", "2026-03-29T01:00:00Z", 2 * time.Minute},
	} {
		if got, err := parse(test.value, test.day, start); err != nil || got != test.want {
			t.Errorf("parse(%q, %q) = %v, %v, want %v", test.value, test.day, got, err, test.want)
		}
	}
	for _, value := range []string{"40d", "+40d", "tomorrow", "2026-03-29", "-"} {
		for _, values := range [][2]string{{value, ""}, {"", value}} {
			if got, err := parse(values[0], values[1], start); err == nil {
				t.Errorf("parse(%q) = %v, want an error", values, got)
			}
		}
	}
}

func TestMoved(t *testing.T) {
	defer func(d time.Duration) { offset = d }(offset)
	offset = 40 * 24 * time.Hour
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	age := func() time.Duration {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return Since(Modified(info))
	}
	if got := age().Round(time.Hour); got != 48*time.Hour {
		t.Errorf("the file is %v old, want 48h", got)
	}
	if err := Touch(path); err != nil {
		t.Fatal(err)
	}
	if got := age().Round(time.Hour); got != 0 {
		t.Errorf("the touched file is %v old", got)
	}
	if got := Until(time.Now()).Round(time.Hour); got != -offset {
		t.Errorf("the machine's clock is %v ahead, want %v", got, -offset)
	}
}
