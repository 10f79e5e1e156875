package slurm

import (
	"context"
	"io"
	"strings"
)

// Factors is a row of sprio: the factors of one pending job in one partition.
type Factors struct {
	ID        uint64
	Partition string
	User      string
	Priority  float64

	Age, Assoc, FairShare, JobSize, PartitionFactor, QOS Factor

	Site, Nice float64
	TRES       []TRESFactor // shared between rows: do not change
}

// Factor is a priority factor: from 0 to 1 (Norm), and multiplied by its weight (Weighted,
// rounded by sprio).
type Factor struct{ Norm, Weighted float64 }

// TRESFactor is the factor of one trackable resource; its name is in lower case.
type TRESFactor struct {
	Name string
	Factor
}

// sprioColumns are the names of the columns, for messages.
var sprioColumns = []string{
	"job id", "partition", "user", "priority", "age", "weighted age", "assoc", "weighted assoc",
	"fair share", "weighted fair share", "job size", "weighted job size", "partition factor", "weighted partition factor",
	"qos", "weighted qos", "site", "nice", "tres", "weighted tres",
}

// sprioFormat has the letters of these columns.
func sprioFormat(mark string) string {
	var format strings.Builder
	for _, letter := range "iruYaAbBfFjJpPqQSNtT" {
		format.WriteString("%" + string(letter) + mark)
	}
	return "--format=" + format.String()
}

// EachFactors calls each with the rows of sprio. The row is valid during the call.
func (c *Client) EachFactors(ctx context.Context, each func(*Factors) error) error {
	form := c.marked("sprio")
	return c.Stream(ctx, func(r io.Reader) error { return scanSprio(r, form, each) },
		"sprio", "--noheader", "--local", sprioFormat(form.mark))
}

func scanSprio(r io.Reader, form layout, each func(*Factors) error) error {
	c := newColumns(r, form, sprioColumns)
	// Many jobs have the same request.
	lists := memo[[]TRESFactor]{parse: parseTRESFactors}
	var both []byte
	tres := func() []TRESFactor {
		both = append(append(append(both[:0], c.cells[18]...), '|'), c.cells[19]...)
		list, ok := lists.get(both)
		c.check(ok, 19, "a list of resources")
		return list
	}
	pair := func(i int) Factor { return Factor{c.float(i), c.float(i + 1)} }
	f := new(Factors)
	for c.next() {
		*f = Factors{
			ID: c.uint(0), Partition: c.text(1), User: c.text(2), Priority: c.float(3),
			Age: pair(4), Assoc: pair(6), FairShare: pair(8), JobSize: pair(10), PartitionFactor: pair(12), QOS: pair(14),
			Site: c.float(16), Nice: c.float(17), TRES: tres(),
		}
		c.done(func() error { return each(f) })
	}
	return c.err
}

// parseTRESFactors joins the two lists of sprio: cpu=0.06,gres/gpu=0.25 and, after a bar,
// cpu=6,gres/gpu=125. sprio omits zeros.
func parseTRESFactors(both string) ([]TRESFactor, bool) {
	norm, weighted, _ := strings.Cut(both, "|")
	norms := map[string]float64{}
	var factors []TRESFactor
	ok := eachFactor(norm, func(name string, v float64) { norms[name] = v }) &&
		eachFactor(weighted, func(name string, v float64) { factors = append(factors, TRESFactor{name, Factor{norms[name], v}}) })
	return factors, ok
}

func eachFactor(list string, each func(string, float64)) bool {
	if none(list) || list == "0" {
		return true
	}
	for item := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(item, "=")
		if name != "" && value != "" && noNumber(value) {
			continue
		}
		v, ok := parseFloat([]byte(value))
		if !ok || name == "" {
			return false
		}
		each(strings.ToLower(name), v)
	}
	return true
}
