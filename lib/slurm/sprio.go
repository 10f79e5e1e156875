package slurm

import (
	"io"
	"strings"
)

// Factors is what sprio says of one pending job in one partition: each factor
// as a number from 0 to 1 (Norm) and times its weight (Weighted, rounded).
type Factors struct {
	ID        uint64
	Partition string
	User      string
	Priority  float64

	Age, Assoc, FairShare, JobSize, PartitionFactor, QOS Factor

	Site, Nice float64
	TRES       []TRESFactor // may be shared between rows
}

// Factor is one factor: 0 to 1, and as its share of the priority.
type Factor struct{ Norm, Weighted float64 }

// maxLists bounds how many different lists are kept to be shared.
const maxLists = 10_000

// TRESFactor is the factor of one trackable resource, by its name in lower case.
type TRESFactor struct {
	Name string
	Factor
}

// sprioColumns name the columns for messages.
var sprioColumns = []string{
	"job id", "partition", "user", "priority", "age", "weighted age", "assoc", "weighted assoc",
	"fair share", "weighted fair share", "job size", "weighted job size", "partition factor", "weighted partition factor",
	"qos", "weighted qos", "site", "nice", "tres", "weighted tres",
}

// SprioArgs are sprio's arguments for the rows of ParseSprio.
func SprioArgs() []string {
	return []string{"--noheader", "--local", "--format=%i|%r|%u|%Y|%a|%A|%b|%B|%f|%F|%j|%J|%p|%P|%q|%Q|%S|%N|%t|%T" + endOfRecord}
}

// ScanSprio reads sprio's rows one by one. The row is good for one call.
func ScanSprio(r io.Reader, row func(*Factors) error) error {
	c := newColumns("sprio", r, endOfRecord, sprioColumns)
	b := c.cells
	lists := map[string][]TRESFactor{} // many jobs ask for the same
	var both []byte
	tres := func() []TRESFactor {
		both = append(append(append(both[:0], b[18]...), '|'), b[19]...)
		list, ok := lists[string(both)]
		if !ok {
			if list = c.tresFactors(b[18], b[19]); len(lists) < maxLists {
				lists[string(both)] = list
			}
		}
		return list
	}
	pair := func(i int) Factor { return Factor{c.float(i, b[i]), c.float(i+1, b[i+1])} }
	for c.next() {
		f := Factors{
			ID: c.uint(0, b[0]), Partition: c.text(b[1]), User: c.text(b[2]), Priority: c.float(3, b[3]),
			Age: pair(4), Assoc: pair(6), FairShare: pair(8), JobSize: pair(10), PartitionFactor: pair(12), QOS: pair(14),
			Site: c.float(16, b[16]), Nice: c.float(17, b[17]), TRES: tres(),
		}
		if c.err != nil {
			return c.err
		}
		if err := row(&f); err != nil {
			return err
		}
	}
	return c.err
}

// tresFactors joins sprio's two lists, cpu=0.06,gres/gpu=0.25 and
// cpu=6,gres/gpu=125. sprio leaves out what is nothing.
func (c *columnReader) tresFactors(norm, weighted []byte) []TRESFactor {
	if len(weighted) == 0 || string(weighted) == "(null)" || string(weighted) == "0" {
		return nil
	}
	norms := map[string]float64{}
	c.eachTRES(18, norm, func(name string, v float64) { norms[name] = v })
	var factors []TRESFactor
	c.eachTRES(19, weighted, func(name string, v float64) {
		factors = append(factors, TRESFactor{name, Factor{norms[name], v}})
	})
	return factors
}

func (c *columnReader) eachTRES(column int, list []byte, each func(string, float64)) {
	if len(list) == 0 || string(list) == "(null)" || string(list) == "0" {
		return
	}
	for item := range strings.SplitSeq(string(list), ",") {
		name, value, ok := strings.Cut(item, "=")
		if !ok || name == "" {
			c.bad(column, list, "a list of resources")
			return
		}
		each(c.known.string([]byte(strings.ToLower(name))), c.float(column, []byte(value)))
	}
}

// ParseSprio reads all of sprio's rows.
func ParseSprio(r io.Reader) ([]Factors, error) {
	var rows []Factors
	err := ScanSprio(r, func(f *Factors) error { rows = append(rows, *f); return nil })
	if err != nil {
		return nil, err
	}
	return rows, nil
}
