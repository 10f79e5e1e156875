package unit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "400": 400, "4G": 4e9, "4GB": 4e9, "4g": 4e9, "400M": 4e8, "4GiB": 4 << 30, "4Gi": 4 << 30, "4gib": 4 << 30,
		"8116MiB": 8116 << 20, "1T": 1e12, "2TiB": 2 << 40, "4K": 4e3, "0.5G": 5e8, "1.5 GiB": 3 << 29, "16 gigabytes": 16e9,
		"1 mebibyte": 1 << 20, "0.1": 1, " 7B ": 7, "700GiB": 751619276800,
	} {
		if got, err := Size(in); got != want || err != nil {
			t.Errorf("Size(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "G", "4X", "1Gfoo", "4 GG", "-4G", "1,5G", "1.2.3G", "9999999999T", "1e9", ".5G", "5.G", "4iB"} {
		if got, err := Size(in); err == nil {
			t.Errorf("Size(%q) = %d; want an error", in, got)
		}
	}
}

func TestFormatSizeRoundTrip(t *testing.T) {
	for _, n := range []int64{0, 1, 999, 1000, 1024, 4e9, 4 << 30, 8116 << 20, 33600000000, 1<<40 + 1} {
		if got, err := Size(FormatSize(n)); got != n || err != nil {
			t.Errorf("Size(FormatSize(%d)) = %d, %v; FormatSize = %q", n, got, err, FormatSize(n))
		}
	}
	for n, want := range map[int64]string{28<<30 + 1: "30.1G", 33600000000: "33600M", 4e9: "4G", 40 << 30: "40GiB"} {
		if got := ShortSize(n); got != want {
			t.Errorf("ShortSize(%d) = %q; want %q", n, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"4d": 4 * day, "4 days": 4 * day, "4days": 4 * day, "1 day": day, "20h": 20 * time.Hour, "4 hours": 4 * time.Hour,
		"4m": 4 * time.Minute, "30 minutes": 30 * time.Minute, "90s": 90 * time.Second, "2 weeks": 14 * day, "1.5h": 90 * time.Minute,
		"1d 12h": 36 * time.Hour, "1h30m": 90 * time.Minute, "4-04:00:00": 100 * time.Hour, "20:00:00": 20 * time.Hour,
		"30:00": 30 * time.Minute, "1-2": 26 * time.Hour, "500ms": 500 * time.Millisecond, "1m0.25s": 60250 * time.Millisecond, "10min": 10 * time.Minute, "2w": 14 * day, "1-12:30": 36*time.Hour + 30*time.Minute,
	} {
		got, err := Duration(in)
		if got != want || err != nil {
			t.Errorf("Duration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "h", "2months", "1:2:3:4", "a:b", "99999999999999w", "-1h", "1-2-3:00", "1-", "-1", "1-2h", "1:-2", "101 years", "37000d", "1e3s", "Inf", "NaN"} {
		if got, err := Duration(in); err == nil {
			t.Errorf("Duration(%q) = %v; want an error", in, got)
		}
	}
	if _, err := Duration("4"); !errors.Is(err, ErrNoUnit) {
		t.Errorf("Duration(4): %v; want ErrNoUnit", err)
	}
}

// TestNumberAlone holds what a number without a unit is.
func TestNumberAlone(t *testing.T) {
	for in, want := range map[string]time.Duration{"90": 90 * time.Second, "0.5": 500 * time.Millisecond, "0": 0, "2m": 2 * time.Minute} {
		if got, err := Seconds(in); got != want || err != nil {
			t.Errorf("Seconds(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	if n, err := SizeWithUnit("500"); !errors.Is(err, ErrNoUnit) {
		t.Errorf("SizeWithUnit(500) = %d, %v; want ErrNoUnit", n, err)
	}
	for in, want := range map[string]int64{"0": 0, "500M": 5e8} {
		if n, err := SizeWithUnit(in); n != want || err != nil {
			t.Errorf("SizeWithUnit(%s) = %d, %v", in, n, err)
		}
	}
}

// TestPrintThenParse holds that what is written is read as the same.
func TestPrintThenParse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		d := time.Duration(r.Int64N(int64(MaxDuration)) >> r.IntN(63))
		if got, err := Duration(FormatDuration(d)); got != d || err != nil {
			t.Fatalf("%d: %q is read as %v, %v", d, FormatDuration(d), got, err)
		}
		seconds := d.Truncate(time.Second)
		if got, err := Duration(FormatTime(seconds)); got != seconds || err != nil {
			t.Fatalf("%v: %q is read as %v, %v", seconds, FormatTime(seconds), got, err)
		}
		if got, err := Duration(d.String()); got != d || err != nil {
			t.Fatalf("%d: Go's %q is read as %v, %v", d, d, got, err)
		}
		n := r.Int64() >> r.IntN(63)
		if got, err := Size(FormatSize(n)); got != n || err != nil {
			t.Fatalf("%d: %q is read as %d, %v", n, FormatSize(n), got, err)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{4 * day: "4d", 36 * time.Hour: "1d12h", 90 * time.Second: "1min30s", 0: "0s"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%v) = %q; want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{345600 * time.Second: "96:00:00", 1800 * time.Second: "00:30:00", 90061 * time.Second: "25:01:01"} {
		if got := FormatTime(d); got != want {
			t.Errorf("FormatTime(%v) = %q; want %q", d, got, want)
		}
	}
}

func FuzzUnits(f *testing.F) {
	for _, s := range []string{"4G", "1.5 GiB", "4 days", "4-04:00:00", "1h30m", "9223372036854775807w", "0.000001s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := Size(s); err == nil {
			if n < 0 {
				t.Errorf("Size(%q) = %d", s, n)
			}
			if again, err := Size(FormatSize(n)); again != n || err != nil {
				t.Errorf("Size(%q) = %d, again %d, %v", s, n, again, err)
			}
		}
		if d, err := Duration(s); err == nil {
			if d < 0 {
				t.Errorf("Duration(%q) = %v", s, d)
			}
			if again, err := Duration(FormatDuration(d)); again != d || err != nil {
				t.Errorf("Duration(%q) = %v, again %v, %v", s, d, again, err)
			}
		}
	})
}

func TestRisk(t *testing.T) {
	for text, want := range map[string]string{"5%": "0.05", "0.1": "0.1", " 50% ": "0.5", "0": "-", "60%": "-", "x": "-", "nan": "-", "-5%": "-"} {
		f, err := Risk(text)
		if got := fmt.Sprint(f); err == nil && got != want || err != nil && want != "-" {
			t.Errorf("%q is %v, %v; want %s", text, f, err, want)
		}
	}
}

func FuzzRisk(f *testing.F) {
	for _, s := range []string{"5%", "0.1", "50 %", "1e-1", "nan", "", "%", "0x1p-4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if risk, err := Risk(s); err == nil && !(risk > 0 && risk <= 0.5) {
			t.Errorf("%q is %v", s, risk)
		}
	})
}
