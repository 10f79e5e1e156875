package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/forecast"
)

// told is a forecast of a job's start that was made, and what came of it.
type told struct {
	Job    string  `json:"job"` // raw id
	Submit int64   `json:"submit"`
	Made   int64   `json:"made"`
	Median float64 `json:"median"` // seconds of waiting from then on, as are the others
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	// RawLow and RawHigh are the bounds as the replays had them, before calibration.
	RawLow  float64 `json:"raw_low"`
	RawHigh float64 `json:"raw_high"`
	Limits  float64 `json:"limits"` // by time limits alone; negative: none
	Slurm   float64 `json:"slurm"`  // Slurm's own; negative: none
	// Start is when the job started, once that is known; negative: it never did.
	Start int64 `json:"start,omitempty"`
}

// forecasts are those that the tool has made on a cluster for this user.
type forecasts struct {
	file string
	all  []told
}

// keptForecasts bounds how many are kept.
const keptForecasts = 2000

// loadForecasts reads what was kept. A line that cannot be read is left out.
func loadForecasts(cluster string) (*forecasts, error) {
	name := strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, cluster)
	f := &forecasts{file: filepath.Join(config.UserStateDir(), "forecasts", name+".jsonl")}
	text, err := os.ReadFile(f.file)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var t told
		if json.Unmarshal(lines.Bytes(), &t) == nil && t.Job != "" {
			f.all = append(f.all, t)
		}
	}
	return f, lines.Err()
}

// save replaces the file by the last forecasts.
func (f *forecasts) save() error {
	slices.SortStableFunc(f.all, func(a, b told) int { return cmp.Compare(a.Made, b.Made) })
	f.all = f.all[max(0, len(f.all)-keptForecasts):]
	var b bytes.Buffer
	for i := range f.all {
		line, err := json.Marshal(&f.all[i])
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	if err := os.MkdirAll(filepath.Dir(f.file), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(f.file, b.Bytes(), 0o600)
}

// settle finds out what became of jobs with a forecast: those that run are in the queue,
// of others the accounting knows. seen has the start of jobs in the queue, 0 if they wait.
func (f *forecasts) settle(ctx context.Context, a *asker, accounting bool, seen map[string]int64) (changed bool, err error) {
	var ask []string
	for i := range f.all {
		t := &f.all[i]
		if t.Start != 0 {
			continue
		}
		start, inQueue := seen[t.Job]
		switch {
		case inQueue && start >= t.Made:
			t.Start, changed = start, true
		case !inQueue && !slices.Contains(ask, t.Job):
			ask = append(ask, t.Job)
		}
	}
	if len(ask) == 0 || !accounting {
		return changed, nil
	}
	starts, err := a.client.Starts(ctx, ask)
	if err != nil {
		return changed, err
	}
	for i := range f.all {
		t := &f.all[i]
		r, known := starts[t.Job]
		switch {
		case t.Start != 0 || !known || r.Submit != t.Submit: // ids are used again
		case r.Start >= t.Made:
			t.Start, changed = r.Start, true
		case r.End > 0:
			t.Start, changed = -1, true // cancelled before it started
		}
	}
	return changed, nil
}

// scored are the forecasts whose outcome is known, the last ones.
func (f *forecasts) scored() []forecast.Scored {
	const last = 200
	var list []forecast.Scored
	for _, t := range f.all {
		if t.Start > 0 {
			list = append(list, forecast.Scored{Median: t.Median, Low: t.Low, High: t.High, RawLow: t.RawLow, RawHigh: t.RawHigh, Limits: t.Limits, Slurm: t.Slurm, Actual: float64(t.Start - t.Made)})
		}
	}
	return list[max(0, len(list)-last):]
}

// rawID is the raw id of a job as text.
func rawID(id uint64) string { return strconv.FormatUint(id, 10) }
