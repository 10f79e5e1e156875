package pool

import "time"

// Spec is what many tasks have in common. Tasks share one Spec, which keeps a
// million of them small.
type Spec struct {
	Need     Need
	Priority int           // higher goes first
	Timeout  time.Duration // the task is ended after it; 0: never
	Time     time.Duration // how long it is expected to take; 0: not known
	Dir      string
	Env      []string
	// Argv says that the text of the task is an argument list, its words
	// separated by NUL, to be run without a shell.
	Argv bool
	// SlotMark says that "{%}" in the text stands for the number of the slot.
	SlotMark bool
}

// Extra is what few tasks have.
type Extra struct {
	ID    string   // the user's name for it
	After []string // the tasks that must have succeeded first
	Stdin string
	// Files are where the standard output and the standard error of the task go, and its number, in
	// addition to other uses of its output; nil: nowhere.
	Files []string
	// Capture has the output returned to the one who asked for the task.
	Capture bool
}

// Task is one command to run.
type Task struct {
	Seq     int64 // its number, from 1: the place in the input
	Text    string
	Tag     string // what --tag prints; empty: the text
	Spec    *Spec
	Extra   *Extra // nil for most
	Attempt int32  // how many times it was handed to a node
	Fails   int16  // attempts that failed
	Losses  int16  // attempts lost with their node
	// Company is with how many others at most it may be at a node, itself included, as
	// workers have died when it ran; 0: any number.
	Company int16
	Avoid   *Node // where it failed last, also when the node has come back
}

// ID is the user's name of the task, or "".
func (t *Task) ID() string {
	if t.Extra == nil {
		return ""
	}
	return t.Extra.ID
}

// Need is what the task needs.
func (t *Task) Need() Need { return t.Spec.Need }

// class is what decides where and when a task may start.
type class struct {
	need     Need
	priority int
	time     time.Duration
	avoid    *Node
	company  int16
}

// avoids reports whether tasks of a class should run elsewhere.
func (c *class) avoids(n *Node) bool { return c.avoid != nil && c.avoid.Name == n.Name }

func (t *Task) class() class {
	return class{t.Spec.Need, t.Spec.Priority, t.Spec.Time, t.Avoid, t.Company}
}

// line is a queue of tasks of one class, the lowest number first. Tasks almost
// always come in order; those that come back go to the front part.
type line struct {
	class
	local  Need    // what a node gives of its need
	shared Named   // and the pool
	tasks  []*Task // tasks[first:] wait, in order
	first  int
	back   []*Task // came back, in order; usually empty
}

// width returns the numbers of CPUs and nodes. If all tasks have the same, they count as equal in
// size.
func (l *line) width() [2]int { return [2]int{l.need.CPUs, int(l.need.Nodes)} }

func (l *line) len() int { return len(l.tasks) - l.first + len(l.back) }

func (l *line) head() *Task {
	if len(l.back) > 0 && (l.first == len(l.tasks) || l.back[0].Seq < l.tasks[l.first].Seq) {
		return l.back[0]
	}
	return l.tasks[l.first]
}

func (l *line) push(t *Task) {
	if n := len(l.tasks); n == l.first || l.tasks[n-1].Seq < t.Seq {
		if l.first > 1024 && l.first > n/2 { // the front is unused
			l.tasks = append(make([]*Task, 0, n-l.first+1024), l.tasks[l.first:]...)
			l.first = 0
		}
		l.tasks = append(l.tasks, t)
		return
	}
	l.back = insert(l.back, t)
}

func (l *line) pop() *Task {
	t := l.head()
	if len(l.back) > 0 && l.back[0] == t {
		l.back = l.back[1:]
		return t
	}
	l.tasks[l.first] = nil
	l.first++
	if l.first == len(l.tasks) {
		l.tasks, l.first = l.tasks[:0], 0
	}
	return t
}

// remove takes the task with that number out.
func (l *line) remove(seq int64) *Task {
	if i := search(l.back, seq); i >= 0 {
		t := l.back[i]
		l.back = append(l.back[:i:i], l.back[i+1:]...)
		return t
	}
	if i := search(l.tasks[l.first:], seq); i >= 0 {
		i += l.first
		t := l.tasks[i]
		copy(l.tasks[i:], l.tasks[i+1:])
		l.tasks[len(l.tasks)-1] = nil
		l.tasks = l.tasks[:len(l.tasks)-1]
		return t
	}
	return nil
}

// find returns the task with that number, or nil.
func (l *line) find(seq int64) *Task {
	if i := search(l.back, seq); i >= 0 {
		return l.back[i]
	}
	if i := search(l.tasks[l.first:], seq); i >= 0 {
		return l.tasks[l.first+i]
	}
	return nil
}

func search(tasks []*Task, seq int64) int {
	low, high := 0, len(tasks)
	for low < high {
		if m := (low + high) / 2; tasks[m].Seq < seq {
			low = m + 1
		} else {
			high = m
		}
	}
	if low < len(tasks) && tasks[low].Seq == seq {
		return low
	}
	return -1
}

func insert(tasks []*Task, t *Task) []*Task {
	i := len(tasks)
	for i > 0 && tasks[i-1].Seq > t.Seq {
		i--
	}
	tasks = append(tasks, nil)
	copy(tasks[i+1:], tasks[i:])
	tasks[i] = t
	return tasks
}
