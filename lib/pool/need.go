package pool

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unique"

	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Need is what a task takes while it runs: of its node, or of each of its nodes. Equal needs are ==.
type Need struct {
	CPUs int
	GPUs int // exclusive
	// Share is the part of one GPU that is enough, in thousandths: others may have the rest.
	// Then GPUs is 0.
	Share int32 `json:",omitempty"`
	// Nodes is on how many nodes the task runs, each of which gives all of the above; 0: one.
	Nodes int32 `json:",omitempty"`
	Mem   int64 // bytes
	// Named are amounts of other resources.
	Named Named `json:",omitzero"`
}

// WholeGPU is a GPU in the unit of Need.Share.
const WholeGPU = 1000

// Fits reports whether so much is no more than what is free on a node.
func (n Need) Fits(free Need) bool {
	return n.CPUs <= free.CPUs && n.GPUs <= free.GPUs && n.Mem <= free.Mem && (n.Share == 0 || n.Share <= free.Share || free.GPUs > 0) &&
		(n.Named == Named{} || n.Named.Fits(free.Named))
}

// String names what is needed: "2 CPUs, 0.5 GPU, 4G, 1 license".
func (n Need) String() string {
	s := count(n.CPUs, "CPU")
	if n.GPUs > 0 {
		s += ", " + count(n.GPUs, "GPU")
	}
	if n.Share > 0 {
		s += ", " + Amount(n.Share).String() + " GPU"
	}
	if n.Mem > 0 {
		s += ", " + unit.ShortSize(n.Mem)
	}
	for _, x := range n.Named.list() {
		s += ", " + x.amount.String() + " " + x.name
	}
	if n.Nodes > 1 {
		s = fmt.Sprintf("%d nodes with %s each", n.Nodes, s)
	}
	return s
}

// Width is on how many nodes the task runs.
func (n Need) Width() int { return max(1, int(n.Nodes)) }

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// plus adds what is of one node; parts of GPUs are added as whole ones.
func (n Need) plus(o Need) Need {
	sum := Need{CPUs: n.CPUs + o.CPUs, GPUs: n.GPUs + o.GPUs, Share: n.Share, Mem: n.Mem + o.Mem, Named: n.Named.Plus(o.Named)}
	return sum.addShare(o, 1)
}

func (n Need) minus(o Need) Need {
	rest := Need{CPUs: n.CPUs - o.CPUs, GPUs: n.GPUs - o.GPUs, Share: n.Share, Mem: n.Mem - o.Mem, Named: n.Named.Minus(o.Named)}
	return rest.addShare(o, -1)
}

// addShare counts a part of a GPU as a whole GPU: others may not be able to use the rest.
func (n Need) addShare(o Need, sign int) Need {
	if o.Share > 0 {
		n.GPUs += sign
	}
	return n
}

// Amount is how much of a resource, in thousandths.
type Amount int64

// maxAmount limits amounts: 1 PiB, if they are bytes.
const maxAmount = 1 << 50 * 1000

// ParseAmount reads "4", "0.5" and sizes such as "50G".
func ParseAmount(s string) (Amount, error) {
	if unit.HasUnit(s) {
		n, err := unit.SizeWithUnit(s)
		if err != nil {
			return 0, err
		}
		if n > maxAmount/1000 {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return Amount(n) * 1000, nil
	}
	whole, part, dot := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 50)
	digits := strings.TrimRight(part, "0")
	var rest uint64
	if err == nil && digits != "" {
		rest, err = strconv.ParseUint((digits + "000")[:max(3, len(digits))], 10, 40)
	}
	if err != nil || dot && part == "" || len(digits) > 3 {
		return 0, fmt.Errorf("%q is neither a number with at most three decimals nor a size", s)
	}
	return Amount(n*1000 + rest), nil
}

// Number writes the amount as a number.
func (a Amount) Number() string {
	sign := ""
	if a < 0 {
		sign, a = "-", -a
	}
	s := sign + strconv.FormatInt(int64(a/1000), 10)
	if a%1000 != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%03d", a%1000), "0")
	}
	return s
}

// String writes the amount: large multiples of a million or a mebibyte as a size.
func (a Amount) String() string {
	if n := int64(a / 1000); a%1000 == 0 && n >= 1_000_000 && (n%1_000_000 == 0 || n%(1<<20) == 0) {
		return unit.FormatSize(n)
	}
	return a.Number()
}

// MaxNamed is how many named resources a task or a node can have.
const MaxNamed = 8

type amountOf struct {
	name   string
	amount Amount
}

// Named are amounts of named resources, none of which is 0. Those that are equal are ==;
// the zero value is none.
type Named struct {
	h unique.Handle[[MaxNamed]amountOf]
}

// list is what there is, by name.
func (n Named) list() []amountOf {
	if n == (Named{}) {
		return nil
	}
	all := n.h.Value()
	i := slices.IndexFunc(all[:], func(x amountOf) bool { return x.name == "" })
	if i < 0 {
		i = MaxNamed
	}
	return all[:i]
}

// Names are the names of the resources.
func (n Named) Names() []string {
	var out []string
	for _, x := range n.list() {
		out = append(out, x.name)
	}
	return out
}

// Get is the amount of one of them.
func (n Named) Get(name string) Amount {
	for _, x := range n.list() {
		if x.name == name {
			return x.amount
		}
	}
	return 0
}

// With is n with another amount of one of them; it panics if these are too many.
func (n Named) With(name string, amount Amount) Named {
	list := slices.DeleteFunc(slices.Clone(n.list()), func(x amountOf) bool { return x.name == name })
	if amount != 0 {
		list = append(list, amountOf{name, amount})
		slices.SortFunc(list, func(a, b amountOf) int { return strings.Compare(a.name, b.name) })
	}
	if len(list) == 0 {
		return Named{}
	}
	return Named{unique.Make([MaxNamed]amountOf(append(list, make([]amountOf, MaxNamed-len(list))...)))}
}

// Plus adds amounts. The names of both together must not be too many.
func (n Named) Plus(o Named) Named {
	for _, x := range o.list() {
		n = n.With(x.name, n.Get(x.name)+x.amount)
	}
	return n
}

// Minus takes amounts away; some may become negative.
func (n Named) Minus(o Named) Named {
	for _, x := range o.list() {
		n = n.With(x.name, n.Get(x.name)-x.amount)
	}
	return n
}

// Fits reports whether so much is no more than what is free.
func (n Named) Fits(free Named) bool {
	return !slices.ContainsFunc(n.list(), func(x amountOf) bool { return x.amount > free.Get(x.name) })
}

// split divides amounts into those whose names other has, and the rest.
func (n Named) split(other Named) (in, rest Named) {
	for _, x := range n.list() {
		if other.Get(x.name) != 0 {
			in = in.With(x.name, x.amount)
		} else {
			rest = rest.With(x.name, x.amount)
		}
	}
	return in, rest
}

// String writes "license=1,scratch=50G", as ParseNamed reads it.
func (n Named) String() string {
	var out []string
	for _, x := range n.list() {
		out = append(out, x.name+"="+x.amount.String())
	}
	return strings.Join(out, ",")
}

var resourceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// ParseNamed reads "license=1,scratch=50G". An amount of 0 is none.
func ParseNamed(s string) (Named, error) {
	var n Named
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return n, fmt.Errorf("%q is not of the form NAME=AMOUNT", part)
		}
		if err := n.set(name, value, seen); err != nil {
			return n, err
		}
	}
	return n, nil
}

// misnamed maps common mistakes to the names of settings. As resources, no node would have them.
var misnamed = map[string]string{"cpu": "cpus", "gpu": "gpus", "node": "nodes", "memory": "mem"}

// set adds an amount that the user has typed, of a resource that n does not have.
func (n *Named) set(name, value string, seen map[string]bool) error {
	switch amount, err := ParseAmount(value); {
	case !resourceName.MatchString(name):
		return fmt.Errorf("invalid name of a resource: %q: expected lower-case letters, digits and _", name)
	case slices.Contains([]string{"cpus", "gpus", "mem", "nodes"}, name):
		return fmt.Errorf("invalid name of a resource: %q is a setting of its own", name)
	case misnamed[name] != "":
		return fmt.Errorf("invalid name of a resource: %q: did you mean %q?", name, misnamed[name])
	case seen[name]:
		return fmt.Errorf("resource %q is named twice", name)
	case len(seen) == MaxNamed:
		return fmt.Errorf("more than %d resources", MaxNamed)
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	default:
		seen[name] = true
		*n = n.With(name, amount)
		return nil
	}
}

// MarshalJSON writes the amounts as an object, in thousandths.
func (n Named) MarshalJSON() ([]byte, error) {
	m := map[string]Amount{}
	for _, x := range n.list() {
		m[x.name] = x.amount
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Named) UnmarshalJSON(b []byte) error {
	var m map[string]Amount
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	if *n = (Named{}); len(m) > MaxNamed {
		return fmt.Errorf("%d resources, at most %d are possible", len(m), MaxNamed)
	}
	for name, amount := range m {
		*n = n.With(name, amount)
	}
	return nil
}
