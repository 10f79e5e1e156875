package server

import (
	_ "embed"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed contract.json
var contractJSON []byte

// Contract is what the market's documents promise, as far as the agent has to do with
// it: facts of the version that Source names.
type Contract struct {
	Source string `json:"source"`
	Client struct {
		Newest string `json:"newest_seen"`
		Oldest string `json:"oldest_that_works"`
	} `json:"client"`
	// Beyond are facts that are not in the documents, and where they come from.
	Beyond []struct {
		Status int    `json:"status"`
		Error  string `json:"error"`
		Header string `json:"header"`
		// Operation has these fields in requests, answers or rows.
		Operation string   `json:"operation"`
		Fields    []string `json:"fields"`
		Source    string   `json:"source"`
	} `json:"beyond_the_documents"`
	Limits struct {
		Image     int     `json:"image_bytes"`
		Args      int     `json:"args_and_onstart_bytes"`
		NewLabel  int     `json:"label_bytes_at_create"`
		Label     int     `json:"label_bytes"`
		Env       int     `json:"env_bytes"`
		EnvEach   int     `json:"env_bytes_each"`
		Disk      float64 `json:"disk_gb_min"`
		PriceMin  float64 `json:"price_min"`
		PriceMax  float64 `json:"price_max"`
		Instances int     `json:"instances_per_page"`
		Charges   int     `json:"charges_per_page"`
	} `json:"limits"`
	Operations []Operation `json:"operations"`
}

// Operation is one documented request.
type Operation struct {
	Name   string `json:"name"`
	Method string `json:"method"`
	Path   string `json:"path"`
	// Scope is the group of permissions that a key needs for it.
	Scope string `json:"scope"`
	// Interval is the least time between two of them by one key, in seconds; Penalty that
	// after one that was refused for that; PerMinute how many there may be in a minute.
	Interval  float64 `json:"interval_seconds"`
	Penalty   float64 `json:"penalty_seconds"`
	PerMinute int     `json:"per_minute"`
	// Limited is how a refusal for that looks: "detail" or "error", by the field of its
	// JSON object, or "" for plain text.
	Limited string `json:"limited"`
	// Errors are the documented values of "error", by status.
	Errors   map[string][]string `json:"errors"`
	Query    []string            `json:"query"`
	Request  []string            `json:"request"`
	Response []string            `json:"response"`
	Row      []string            `json:"row"` // fields of an offer, instance or charge

	pattern *regexp.Regexp
}

// TheContract is the fixture contract.json.
var TheContract = func() Contract {
	var c Contract
	if err := json.Unmarshal(contractJSON, &c); err != nil {
		panic(err)
	}
	for i := range c.Operations {
		o := &c.Operations[i]
		o.pattern = regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(o.Path), `\{id\}`, `\d+`) + "?$")
	}
	return c
}()

// Find returns the operation that a request is, or nil.
func (c Contract) Find(method, path string) *Operation {
	for i := range c.Operations {
		if o := &c.Operations[i]; o.Method == method && o.pattern.MatchString(path) {
			return o
		}
	}
	return nil
}

// Known are the fields that an operation has in its request, its answer and the rows of
// that, by the documents or beyond them.
func (c Contract) Known(o *Operation) []string {
	known := slices.Concat(o.Query, o.Request, o.Response, o.Row)
	for _, b := range c.Beyond {
		if b.Operation == o.Name {
			known = append(known, b.Fields...)
		}
	}
	return known
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
