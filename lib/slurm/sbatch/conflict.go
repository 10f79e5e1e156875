package sbatch

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Newest is the newest version that the table covers.
const Newest Version = 2605

// Conflict returns why the sbatch of a version refuses options together, whatever else a job has, or nil.
func (o Options) Conflict(v Version) error {
	for _, p := range pairs {
		a, b := o.Has(p.a), o.Has(p.b)
		if p.b == "gres" {
			b = Option{Name: p.b, Value: o.Value(p.b)}.GPUs()
		}
		if a && b && p.refused > 0 && p.refused <= v {
			return fmt.Errorf("--%s and --%s cannot be combined", p.a, p.b)
		}
	}
	s := shares{options: o}
	s.read()
	return cmp.Or(s.mixed(), s.odd())
}

// Whose GPUs an option counts: a larger part of the job first.
const (
	perJob = iota
	perNode
	perSocket
	perTask
	parts
)

// sharing are the options that say how many GPUs each part of a job has. Of several for one part, the last counts.
var sharing = [parts][]string{{"gpus"}, {GPUsPerNode, "gres"}, {"gpus-per-socket"}, {"gpus-per-task", "tres-per-task"}}

// division is how many smaller parts a larger one has.
type division struct{ option, parts string }

// divisions are those for which there is an option. A larger part has a multiple of the GPUs of a smaller one there, and at least as
// many elsewhere.
var divisions = map[[2]int]division{
	{perJob, perNode}: {"nodes", "nodes"}, {perJob, perTask}: {"ntasks", "tasks"},
	{perNode, perSocket}: {"sockets-per-node", "sockets per node"}, {perNode, perTask}: {TasksPerNode, "tasks per node"},
	{perSocket, perTask}: {"ntasks-per-socket", "tasks per socket"},
}

// share is how many GPUs of a type the parts of a job have, and by which option; 0: none says.
type share struct {
	count [parts]int64
	by    [parts]string
}

// shares has the GPUs that options request by their type, "" those of any. What cannot be read is left out: [Option.Check] says so.
type shares struct {
	options Options
	kinds   map[string]*share
}

func (s *shares) read() {
	s.kinds = map[string]*share{}
	for part, names := range sharing {
		for _, name := range names {
			r := reader{options: s.options}
			for kind, n := range r.devices(name)[gpu] {
				if n == 0 || r.err != nil {
					continue
				}
				if s.kinds[kind] == nil {
					s.kinds[kind] = &share{}
				}
				s.kinds[kind].count[part], s.kinds[kind].by[part] = n, name
			}
		}
	}
}

// mixed returns an error if some GPUs have a type, and others none.
func (s *shares) mixed() error {
	if s.kinds[""] == nil || len(s.kinds) == 1 {
		return nil
	}
	return errors.New("GPUs with a type and without one cannot be combined")
}

// odd returns an error if the numbers of GPUs of the parts of a job do not add up.
func (s *shares) odd() error {
	for _, kind := range slices.Sorted(maps.Keys(s.kinds)) {
		k := s.kinds[kind]
		for large := range parts {
			for small := large + 1; small < parts; small++ {
				if err := s.divide(k, large, small); err != nil {
					return err
				}
			}
		}
		if least, _ := s.between("nodes"); k.count[perJob] > 0 && k.count[perJob] < least {
			return fmt.Errorf("%s has fewer GPUs than the job has nodes", s.said(k.by[perJob]))
		}
	}
	return nil
}

// divide returns an error if a large part cannot consist of small ones, or not of as many as options say.
func (s *shares) divide(k *share, large, small int) error {
	all, each := k.count[large], k.count[small]
	if all == 0 || each == 0 {
		return nil
	}
	d, divides := divisions[[2]int{large, small}]
	of := fmt.Sprintf("%s and %s", s.said(k.by[large]), s.said(k.by[small]))
	switch {
	case all < each:
		return fmt.Errorf("%s do not fit: the second one is larger", of)
	case !divides:
		return nil
	case all%each != 0:
		return fmt.Errorf("%s do not fit: the second one does not divide the first one", of)
	}
	if least, most := s.between(d.option); all/each < least || most > 0 && all/each > most {
		return fmt.Errorf("%s make %d %s, which do not fit %s", of, all/each, d.parts, s.said(d.option))
	}
	return nil
}

// between returns the least and the most that an option about numbers allows; 0: any.
func (s *shares) between(option string) (least, most int64) {
	r := reader{options: s.options}
	if option != "nodes" {
		n := r.count(option)
		return n, n
	}
	var a Amount
	r.nodes(&a)
	if tasks := r.count("ntasks"); tasks > 0 && a.Nodes > 0 {
		return min(a.Nodes, tasks), min(a.MostNodes, tasks)
	}
	return a.Nodes, a.MostNodes
}

// said returns an option as a person gave it.
func (s *shares) said(name string) string {
	return Option{Name: name, Value: s.options.Value(name)}.Arg()
}
