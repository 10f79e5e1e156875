package task

import (
	"fmt"
	"strings"
	"time"
)

// ID names a task. It is safe as a file name and as an argument: 1 to 64 ASCII
// letters, digits, '-' and '_', the first one a letter or digit. Arkindex and
// the spool use UUIDs.
type ID string

// maxID is the longest id in bytes.
const maxID = 64

// ParseID checks an id that comes from outside.
func ParseID(s string) (ID, error) {
	switch {
	case s == "":
		return "", fmt.Errorf("task id is empty")
	case len(s) > maxID:
		return "", fmt.Errorf("task id %.20q... is longer than %d characters", s, maxID)
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_') {
			return "", fmt.Errorf("task id %q has a %q: expected letters, digits, '-' and '_'", s, c)
		}
	}
	return ID(s), nil
}

// Short returns the short id: the last 8 characters of a long id. Ids of the same time differ only
// there.
func (id ID) Short() string {
	if len(id) <= 12 {
		return string(id)
	}
	return string(id[len(id)-8:])
}

// State is the state of a task, as the queue names it.
type State string

// The states. Agents report Running and the final ones but Cancelled.
const (
	Unscheduled State = "unscheduled"
	Pending     State = "pending"
	Running     State = "running"
	Completed   State = "completed"
	Failed      State = "failed" // the task's own error: a non-zero exit code
	Error       State = "error"  // an error of the system: no resources, node lost, time limit
	Stopping    State = "stopping"
	Stopped     State = "stopped"
	Cancelled   State = "cancelled"
)

// Final reports whether a task in this state has ended.
func (s State) Final() bool {
	switch s {
	case Completed, Failed, Error, Stopped, Cancelled:
		return true
	}
	return false
}

// Known reports whether s is one of the states.
func (s State) Known() bool {
	switch s {
	case Unscheduled, Pending, Running, Stopping:
		return true
	}
	return s.Final()
}

// Report is the state of a task, with its reason.
type Report struct {
	State    State
	Reason   string // for people; "" if there is none
	ExitCode int    // of the task's command; meaningful in Completed and Failed
	Rent
	// Of a task whose job has ended: the job, and when the command began and ended according to the
	// job; zero: unknown.
	Job          string
	Began, Ended time.Time
	// What the command used, where the job has measured it; 0: unknown.
	CPU    time.Duration
	Memory int64 // bytes, the maximum
	// Kept is the directory of what the task has written to its working directory; "": there is none.
	Kept string
}

// Rent is what is known of the rented machine on which a task ran; zero: on none, or unknown.
type Rent struct {
	Cost    float64 `json:"cost_dollars,omitempty"`
	Machine int64   `json:"machine,omitempty"` // its number at the market
	GPU     string  `json:"gpu,omitempty"`
}

// Parent is a task whose artifacts another one reads.
type Parent struct {
	ID   ID     `json:"id"`
	Slug string `json:"slug,omitempty"`
}

// File is a file that a task needs: a model or a data set.
type File struct {
	Name string `json:"name"` // a plain file name
	URL  string `json:"url"`  // may hold a signature: never to be printed
	// Version distinguishes the contents of the same URL at two times, where the queue knows it.
	Version string `json:"-"`
}

// Source is where a task's code is: an archive, or else a revision of a git
// repository. Both empty: the command needs no code of its own.
type Source struct {
	Repository string `json:"repository,omitempty"`
	Revision   string `json:"revision,omitempty"`
	Archive    string `json:"archive,omitempty"` // path of a .tar.gz
	// Directory is the path of the directory whose contents the source had when it was made; "": that of none, as of
	// a revision that was named.
	Directory string `json:"directory,omitempty"`
	// InPlace says that the task runs in Directory itself: nothing is copied.
	InPlace bool `json:"in_place,omitempty"`
	// Environment is the directory of a Python environment that the task uses, in place of one that is made of its code; "": none.
	Environment string `json:"environment,omitempty"`
	// Patch is the path of the changes that Archive has beyond Revision: a record for people, which
	// is never applied.
	Patch string `json:"patch,omitempty"`
}

// Same reports whether two sources have the same code.
func (s Source) Same(other Source) bool {
	if s.InPlace || other.InPlace {
		return s == other
	}
	return s.Repository == other.Repository && s.Revision == other.Revision && s.Archive == other.Archive
}

// Request is what a task needs to run, in addition to the configuration.
type Request struct {
	// Find is a resource request in the language of lfind, such as "cuda(mem=14G) * 2".
	Find string `json:"find,omitempty"`
	// Sbatch are options of sbatch, NAME=VALUE, or NAME of one without a value.
	Sbatch []string `json:"sbatch,omitempty"`
}

// IsZero reports whether the task needs nothing of its own.
func (r Request) IsZero() bool { return r.Find == "" && len(r.Sbatch) == 0 }

// Attempt is a try of a task that was followed by another one.
type Attempt struct {
	Number   int       `json:"attempt"` // from 1
	Job      string    `json:"job"`
	State    State     `json:"state"` // failed or error
	Reason   string    `json:"reason"`
	ExitCode int       `json:"exit_code,omitempty"`
	Ended    time.Time `json:"ended"`
	// Retry is the reason as rules name it, such as oom or exit=75, and Changed are the
	// options of sbatch by which the next attempt differs.
	Retry   string   `json:"retry"`
	Changed []string `json:"changed,omitempty"`
}

// Task is all that is known of a task. Only ID is always set.
type Task struct {
	ID          ID
	Slug        string
	State       State // "" if the queue does not say
	Process     string
	Run         int
	Agent       string // the agent it is assigned to, "" if the queue does not say
	Source      Source
	Worker      string // slug of the worker within the repository's configuration
	Image       string // Docker image, for runners that use one
	ImageOnly   bool   // the image is the whole code: there is no other
	Command     []string
	Env         map[string]string // holds tokens: never to be printed
	RequiresGPU bool
	Request     Request
	Retry       string   // rules of lib/task/need; "" are those of the configuration
	Keep        []string // patterns of files that are kept, see lib/agent/code/kept; none: all
	Parents     []Parent
	Files       []File
	TTL         time.Duration // longest run time; 0: no limit
}

// Label returns the name of a task for people: its slug, or else its id.
func (t Task) Label() string {
	if t.Slug != "" {
		return Clean(t.Slug)
	}
	return string(t.ID)
}

// Artifact is a file that a task has written.
type Artifact struct {
	Path        string // slash-separated, relative, within the task's work directory
	Size        int64  // bytes
	ContentType string
}

// Clean makes outside text fit for one line of a terminal or a log: control
// characters become spaces, and it is cut at 200 bytes.
func Clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "..."
	}
	return strings.TrimSpace(s)
}

// SomeOf names a few of many names that come from outside, for one line.
func SomeOf(names []string) string {
	const most = 3
	var short []string
	for _, n := range names[:min(most, len(names))] {
		short = append(short, Clean(n))
	}
	text := strings.Join(short, ", ")
	if n := len(names) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// CleanAddress is Clean for the address of a repository, without the user in it,
// which may be a token or come with a password.
func CleanAddress(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Clean(s)
	}
	host, path, hasPath := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	if hasPath {
		host += "/" + path
	}
	return Clean(scheme + "://" + host)
}
