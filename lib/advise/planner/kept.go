package planner

import (
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

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/place"
)

// Told is a forecast of a job's start, and its outcome.
type Told struct {
	Job    string  `json:"job"` // raw id
	Submit int64   `json:"submit"`
	Made   int64   `json:"made"`
	Median float64 `json:"median"` // seconds of waiting from then on, as are the others
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	// These are as the replays had them, before calibration.
	RawMedian float64 `json:"raw_median"`
	RawLow    float64 `json:"raw_low"`
	RawHigh   float64 `json:"raw_high"`
	Limits    float64 `json:"limits"` // by time limits alone; negative: none
	Slurm     float64 `json:"slurm"`  // Slurm's own; negative: none
	// Start is when the job started, once that is known; negative: it never did.
	Start int64 `json:"start,omitempty"`
}

// Kept are the forecasts that were made on a cluster for this user, and those of the site.
type Kept struct {
	file string
	All  []Told
	site []Told
}

// siteForecasts is where a site may place forecasts of a user, for all.
var siteForecasts = "/etc/ponos/forecasts"

// keptForecasts limits how many are kept.
const keptForecasts = 2000

// LoadKept reads what was kept. A line that cannot be read is left out.
func LoadKept(cluster string) (*Kept, error) {
	name := strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, cluster)
	f := &Kept{file: filepath.Join(place.UserStateDir(), "forecasts", name+".jsonl")}
	var err error
	if f.site, err = readTold(filepath.Join(siteForecasts, name+".jsonl")); err != nil {
		return nil, err
	}
	f.All, err = readTold(f.file)
	return f, err
}

// readTold reads forecasts from a file of root or this user, which need not exist.
func readTold(file string) (all []Told, err error) {
	text, err := place.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		t := Told{RawMedian: -1}
		if json.Unmarshal(line, &t) == nil && t.Job != "" {
			if t.RawMedian < 0 {
				t.RawMedian = t.Median
			}
			all = append(all, t)
		}
	}
	return all, nil
}

// Save replaces the file by the last forecasts.
func (f *Kept) Save() error {
	slices.SortStableFunc(f.All, func(a, b Told) int { return cmp.Compare(a.Made, b.Made) })
	f.All = f.All[max(0, len(f.All)-keptForecasts):]
	var b bytes.Buffer
	for i := range f.All {
		line, err := json.Marshal(&f.All[i])
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

// forgotten, in seconds, is the time after which no records remain of a job that is
// neither in the queue nor in accounting.
const forgotten = 86400

// Settle finds the outcomes of forecasts: jobs that run are in the queue, others in
// accounting. seen has the start of jobs in the queue, 0 if they wait.
func (f *Kept) Settle(ctx context.Context, a *Asker, accounting bool, seen map[string]int64) (changed bool, err error) {
	var ask []string
	for i := range f.All {
		t := &f.All[i]
		if t.Start != 0 {
			continue
		}
		start, inQueue := seen[t.Job]
		switch {
		case inQueue && start >= t.Made:
			t.Start, changed = start, true
		case !inQueue && !accounting:
			t.Start, changed = -1, true // its result is unknown
		case !inQueue && !slices.Contains(ask, t.Job):
			ask = append(ask, t.Job)
		}
	}
	if len(ask) == 0 || !accounting {
		return changed, nil
	}
	starts, err := a.Client.Starts(ctx, ask)
	if err != nil {
		return changed, err
	}
	for i := range f.All {
		t := &f.All[i]
		r, known := starts[t.Job]
		switch {
		case t.Start != 0:
		case !known && slices.Contains(ask, t.Job) && a.Now().Unix()-t.Made > forgotten:
			t.Start, changed = -1, true
		case !known:
		case r.Submit != t.Submit:
			t.Start, changed = -1, true // ids are used again
		case r.Start >= t.Made:
			t.Start, changed = r.Start, true
		case r.End > 0:
			t.Start, changed = -1, true // cancelled before it started
		}
	}
	return changed, nil
}

// Scored are the last forecasts whose outcome is known, in the order in which it came;
// behind them, if now is given, those of jobs that wait, with how long they have waited.
func (f *Kept) Scored(now int64) []forecast.Scored {
	last := slices.Concat(f.site, f.All)
	slices.SortStableFunc(last, func(a, b Told) int { return cmp.Compare(a.Made, b.Made) })
	last = last[max(0, len(last)-2*forecast.Remembered):]
	slices.SortStableFunc(last, func(a, b Told) int { return cmp.Compare(max(0, a.Start), max(0, b.Start)) })
	var list, open []forecast.Scored
	for _, t := range last {
		s := forecast.Scored{
			Median: t.Median, Low: t.Low, High: t.High, RawMedian: t.RawMedian, RawLow: t.RawLow, RawHigh: t.RawHigh,
			Limits: t.Limits, Slurm: t.Slurm, Actual: float64(t.Start - t.Made),
		}
		switch {
		case t.Start > 0:
			list = append(list, s)
		case t.Start == 0 && now > 0:
			s.Open, s.Actual = true, float64(max(0, now-t.Made))
			open = append(open, s)
		}
	}
	return append(list[max(0, len(list)-forecast.Remembered):], open...)
}

// Taught are Scored forecasts, where these are few behind those of past jobs: each is forecast as at its submission, with what the last
// jobs of accounting tell of the cluster. It takes no more time than over lets it.
func (f *Kept) Taught(over func() bool, now int64, runs []forecast.Past) []forecast.Scored {
	const enough, recent, probes = 40, 3000, 120
	scored := f.Scored(now)
	if known := len(f.Scored(0)); known >= enough {
		return scored
	}
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b forecast.Past) int { return cmp.Compare(a.Submit, b.Submit) })
	waited := func(s forecast.Scored) bool { return s.Actual > 0 || s.RawMedian > 0 }
	var taught []forecast.Scored
	for _, s := range forecast.ScoreTrace(over, runs[max(0, len(runs)-recent):], probes, func([]forecast.Scored) {}) {
		if !waited(s) { // a job that found an empty cluster says nothing of queues
			continue
		}
		// A pool leaves nodes and priorities out, too.
		taught = append(taught, s.Beside(len(taught)%2 == 0))
	}
	return append(taught, scored...)
}

// RawID is the raw id of a job as text.
func RawID(id uint64) string { return strconv.FormatUint(id, 10) }
