package priority

import (
	"reflect"
	"testing"
	"time"
)

func TestDaily(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	// The night in which the clocks go back has 25 hours.
	since := time.Date(2026, 10, 24, 12, 0, 0, 0, berlin)
	d := NewDaily(since, since.AddDate(0, 0, 2))
	if len(d.Days) != 3 || d.Days[0].Hour() != 0 {
		t.Fatalf("days %v", d.Days)
	}
	d.Add(Use{Start: since.Add(-time.Hour).Unix(), End: since.AddDate(0, 0, 9).Unix(), Who: "a", Amount: 2})
	if got, want := d.Sums["a"], []float64{12 * 3600 * 2, 25 * 3600 * 2, 12 * 3600 * 2}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	d.Add(Use{Start: 5, End: 6, Who: "b", Amount: 1})
	d.AddDay(1, "c", 7)
	if d.Total("b") != 0 || d.Total("c") != 7 {
		t.Error(d.Sums)
	}
}
