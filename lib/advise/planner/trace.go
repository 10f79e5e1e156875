package planner

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
)

var errNoWaits = errors.New("no job of the trace has a known wait and run time, so that there is nothing to compare a forecast with")

var errNoTrace = errors.New("it is neither a listing of sacct nor a trace in the Standard Workload Format")

// ReadTrace reads jobs that have ended, as sacct prints them, or of a trace in the Standard
// Workload Format.
func ReadTrace(r io.Reader) ([]forecast.Past, error) {
	text := bufio.NewReaderSize(r, 64<<10)
	start, _ := text.Peek(4096)
	first := strings.TrimSpace(string(start))
	if strings.HasPrefix(first, ";") || len(strings.Fields(strings.SplitN(first, "\n", 2)[0])) == swfFields {
		return readSWF(text)
	}
	var runs []forecast.Past
	err := slurm.ParseRuns(text, func(rec *slurm.Record) error {
		if p, ok := PastOf(rec); ok && rec.End > 0 {
			runs = append(runs, p)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		return nil, errNoTrace
	}
	return runs, nil
}

// letters is a number as a name: of names, digits do not count.
func letters(n int64) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return 'a' + r - '0'
		}
		return r
	}, strconv.FormatInt(n, 10))
}

// swfFields is how many numbers a job has in the Standard Workload Format: its number,
// submission, wait, run time, processors, processor time, memory, requested processors,
// time and memory, status, user, group, program, queue, partition, and two more.
const swfFields = 18

func readSWF(r io.Reader) ([]forecast.Past, error) {
	var runs []forecast.Past
	unknown := 0
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], ";") {
			continue
		}
		if len(words) != swfFields {
			return nil, fault.Errorf(fault.Usage, "line %d has %d fields instead of %d", n, len(words), swfFields)
		}
		var f [swfFields]int64
		for i, word := range words {
			v, err := strconv.ParseFloat(word, 64)
			if err != nil || v < -1<<53 || v > 1<<53 {
				return nil, fault.Errorf(fault.Usage, "line %d: invalid number %q", n, word)
			}
			f[i] = int64(v)
		}
		processors := max(f[4], f[7])
		if f[1] < 0 || f[2] < 0 || f[3] < 0 || processors <= 0 {
			unknown++
			continue // it was cancelled, or something is not known
		}
		const epoch = 1_000_000_000 // a trace counts from its begin
		p := forecast.Past{
			Name: letters(f[13]), User: strconv.FormatInt(f[11], 10), Account: strconv.FormatInt(f[12], 10),
			Partition: swfPartition(f[14], f[15]),
			Submit:    epoch + f[1], Start: epoch + f[1] + f[2], End: epoch + f[1] + f[2] + f[3], Limit: f[8],
			Nodes: 1, Need: forecast.Resources{CPUs: float64(processors)},
		}
		if p.Limit <= 0 {
			p.Limit = forecast.Forever
		}
		runs = append(runs, p)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	switch {
	case len(runs) > 0:
		return runs, nil
	case unknown > 0:
		return nil, errNoWaits
	default:
		return nil, errNoTrace
	}
}

// swfPartition names what a job waits for: many traces have queues, and one partition or none.
func swfPartition(queue, partition int64) string {
	switch {
	case queue <= 0:
		return strconv.FormatInt(partition, 10)
	case partition <= 0:
		return strconv.FormatInt(queue, 10)
	}
	return strconv.FormatInt(queue, 10) + "." + strconv.FormatInt(partition, 10)
}
