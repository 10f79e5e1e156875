package usage

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Risk is the default risk that a run needs more than is advised.
const Risk = 0.05

// Learned is what the next run of a job should request; 0 means unknown.
type Learned struct {
	Runs  int // that teach how long it takes
	Time  time.Duration
	Peaks int // that teach how much memory it needs
	MemMB int64
	CPUs  int64 // fewer than it had; 0: as many as before
	// Cut means that too many runs ended at their time limit, Killed that too many ran out of
	// memory: they need more than they had, and the amount is unknown.
	Cut, Killed bool
	// Few means that there are fewer runs than the risk requires: the most that was seen is
	// raised by half.
	Few bool
}

// spare is what is added to what was needed: runs differ, and memory is sampled.
const spare = 1.1

// Learn returns what the runs of one job suggest. Risk is the part of runs that may need more than
// is advised: the amount is the least that would have been enough for all but that part,
// counted so that it holds for the next run whatever the distribution is: of n runs, the
// one of rank ceil((n+1)(1-risk)). A run that was ended by its limit needed more than
// that.
func Learn(runs []Run, risk float64) Learned {
	var l Learned
	var times, peaks []float64
	cpus, most := 0.0, 0.0
	single := true
	for i := range runs {
		r := &runs[i]
		if !r.Ended() || r.Start == 0 {
			continue
		}
		switch r.State {
		case "COMPLETED":
			times = append(times, r.Elapsed.Seconds())
		case "TIMEOUT", "DEADLINE":
			times = append(times, math.Inf(1))
		}
		switch {
		case r.State == "OUT_OF_MEMORY":
			peaks = append(peaks, math.Inf(1))
		case r.PeakMB > 0:
			peaks = append(peaks, r.PeakMB)
		}
		if r.State == "COMPLETED" && r.CPUSeconds != Unknown && r.Elapsed >= time.Minute {
			most = max(most, r.CPUSeconds/r.Elapsed.Seconds())
		}
		cpus = max(cpus, r.CPUs)
		single = single && r.Nodes == 1 && r.Tasks <= 1
	}
	l.Runs, l.Peaks = len(times), len(peaks)
	if enough, few := enough(times, risk); math.IsInf(enough, 1) {
		l.Cut = true
	} else if enough > 0 {
		l.Time, l.Few = roundTime(time.Duration(enough*spare*float64(time.Second))), few
	}
	if enough, few := enough(peaks, risk); math.IsInf(enough, 1) {
		l.Killed = true
	} else if enough > 0 {
		l.MemMB = roundMemory(enough * spare)
		l.Few = l.Few || few
	}
	if n := int64(math.Ceil(most * spare)); single && n >= 1 && 2*float64(n) <= cpus {
		l.CPUs = n
	}
	return l
}

// enough is the least amount that is enough for all but a part of the runs; few means that
// there are too few of them to tell.
func enough(needed []float64, risk float64) (amount float64, few bool) {
	n := len(needed)
	if n == 0 {
		return 0, false
	}
	slices.Sort(needed)
	rank := int(math.Ceil(float64(n+1)*(1-risk) - 1e-9))
	if rank <= n {
		return needed[max(1, rank)-1], false
	}
	return 1.5 * needed[n-1], true
}

// roundTime rounds up to what people write.
func roundTime(d time.Duration) time.Duration {
	step := 6 * time.Hour
	switch {
	case d <= time.Hour:
		step = 5 * time.Minute
	case d <= 12*time.Hour:
		step = 15 * time.Minute
	case d <= 48*time.Hour:
		step = time.Hour
	}
	return (d + step - 1) / step * step
}

func roundMemory(mb float64) int64 {
	step := 1024.0
	switch {
	case mb <= 1000:
		step = 100
	case mb <= 8*1024:
		step = 256
	case mb > 128*1024:
		step = 8 * 1024
	}
	return int64(math.Ceil(mb/step) * step)
}

// Options returns the options of sbatch that request less than all the runs did, to be
// copied.
func (l *Learned) Options(s *Sum) sbatch.Options {
	var options sbatch.Options
	if l.Time > 0 && s.Largest > 0 && l.Time <= s.Largest/4*3 {
		options = append(options, sbatch.Option{Name: "time", Value: slurm.FormatDuration(l.Time)})
	}
	if l.MemMB > 0 && s.MemMB > 0 && float64(l.MemMB)*4 <= s.MemMB*3 {
		options = append(options, sbatch.Option{Name: "mem", Value: slurm.FormatMemory(l.MemMB << 20)})
	}
	if l.CPUs > 0 {
		options = append(options, sbatch.Option{Name: sbatch.CPUsPerTask, Value: strconv.FormatInt(l.CPUs, 10)})
	}
	return options
}
