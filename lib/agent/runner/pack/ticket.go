package pack

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// A Ticket is what a pilot must know about a task. All of it is in its name.
type Ticket struct {
	At      time.Time
	Key     string // unique
	CPUs    int
	GPUs    int
	Mem     int64         // bytes; 0: no limit
	Limit   time.Duration // of the task's time
	Attempt int
	Task    task.ID
}

// Job returns the name of the task's job until a pilot has taken it.
func (t Ticket) Job() string { return jobPrefix + t.Key }

const jobPrefix = "pack."

// name returns a file name by which tickets sort by time.
func (t Ticket) name() string {
	size := strconv.Itoa(t.CPUs)
	if t.GPUs > 0 {
		size += "+" + strconv.Itoa(t.GPUs)
	}
	return fmt.Sprintf("%020d.%s.%s.%d.%d.%d.%s", t.At.UnixNano(), t.Key, size, t.Mem, int64(t.Limit/time.Second), t.Attempt, t.Task)
}

// parseTicket parses the name of a ticket.
func parseTicket(name string) (t Ticket, ok bool) {
	f := strings.Split(name, ".")
	if len(f) != 7 {
		return t, false
	}
	cpus, gpus, _ := strings.Cut(f[2], "+")
	var n [6]int64
	for i, text := range []string{f[0], cpus, f[3], f[4], f[5], cmp.Or(gpus, "0")} {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < 0 {
			return t, false
		}
		n[i] = v
	}
	id, err := task.ParseID(f[6])
	if err != nil || f[1] == "" || n[1] < 1 || n[1] > 1<<20 || n[3] > 1<<32 || n[4] > 1<<32 || n[5] > 1<<20 {
		return t, false
	}
	t = Ticket{
		At: time.Unix(0, n[0]), Key: f[1], CPUs: int(n[1]), GPUs: int(n[5]), Mem: n[2],
		Limit: time.Duration(n[3]) * time.Second, Attempt: int(n[4]), Task: id,
	}
	return t, t.name() == name
}

// taken returns the name of a ticket that a pilot has taken as its n-th.
func taken(n int, name string) string { return strconv.Itoa(n) + "~" + name }

func parseTaken(name string) (n int, t Ticket, ok bool) {
	number, rest, _ := strings.Cut(name, "~")
	n, err := strconv.Atoi(number)
	t, ok = parseTicket(rest)
	return n, t, ok && err == nil && n > 0
}

// IsJob reports whether a job is that of a packed task: PILOT.N, or the job of its ticket.
func IsJob(job string) bool { return strings.Contains(job, ".") }

// IsTicket reports whether a job is that of a ticket that no pilot had taken.
func IsTicket(job string) bool { return strings.HasPrefix(job, jobPrefix) }

// PilotOf returns the pilot of a packed task's job; "" before one has taken it.
func PilotOf(job string) string {
	at := strings.LastIndexByte(job, '.')
	if at < 0 || IsTicket(job) {
		return ""
	}
	return job[:at]
}
