package vastai

import (
	"context"
	"encoding/json"
	"errors"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ChargePages limits the number of pages of a bill. A page has at most 500 rows from the API,
// and 100 from the vastai program.
const (
	ChargePages = 100
	chargesREST = 500
	chargesCLI  = 100
)

// Charges returns a page of what was billed for instances.
func (r *REST) Charges(ctx context.Context, from, to time.Time, after string) ([]Charge, string, error) {
	filter, err := json.Marshal(map[string]any{
		"day": map[string]int64{"gte": from.Unix(), "lte": to.Unix()}, "type": map[string]any{"in": []string{"instance"}},
	})
	if err != nil {
		return nil, "", err
	}
	query := url.Values{
		"select_filters": {string(filter)}, "format": {"table"}, "latest_first": {"true"}, "limit": {strconv.Itoa(chargesREST)},
	}
	if after != "" {
		query.Set("after_token", after)
	}
	return charges(r.repeat(ctx, chargesOp, http.MethodGet, "/api/v0/charges/?"+query.Encode(), nil))
}

// Charges returns a page of what was billed for instances.
func (c *CLI) Charges(ctx context.Context, from, to time.Time, after string) ([]Charge, string, error) {
	args := []string{"show", "invoices-v1", "--charges", "--charge-type", "instance", "--start-date", strconv.FormatInt(from.Unix(), 10),
		"--end-date", strconv.FormatInt(to.Unix(), 10), "--limit", strconv.Itoa(chargesCLI), "--latest-first"}
	if after != "" {
		args = append(args, "--next-token", after)
	}
	return charges(c.repeat(ctx, chargesOp, append(args, common...)...))
}

const chargesOp = "charges"

// charges parses the answer to a request for a page of charges.
func charges(raw []byte, err error) ([]Charge, string, error) {
	if err != nil {
		return nil, "", err
	}
	page, next, err := parseCharges(raw)
	if err != nil {
		return nil, "", failed(chargesOp, nil, 0, fault.Text(err))
	}
	return page, next, nil
}

// billing is a bill that is partly read. One call reads a limited number of pages, as requests
// are limited, and the next call continues.
type billing struct {
	Begun time.Time `json:"begun"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Pages int       `json:"pages"`
	Next  string    `json:"next"`
	Rows  []Charge  `json:"rows"`
}

// billingServes is how long the token of a page is assumed to be valid.
const billingServes = time.Hour

func (g *Governor) billingFile() string { return filepath.Join(g.Dir, "billing.json") }

// Unfinished reports whether a bill that starts at from is partly read.
func (g *Governor) Unfinished(from time.Time) bool {
	var b billing
	raw, err := place.ReadFile(g.billingFile())
	return err == nil && json.Unmarshal(raw, &b) == nil && b.From.Equal(from) && b.serves(g.Now())
}

func (b billing) serves(now time.Time) bool {
	return b.Next != "" && !b.Begun.After(now) && now.Sub(b.Begun) < billingServes
}

// Charges returns what was billed, as of since or later. One call requests at most pages pages.
// If there are more, the error is ErrMore, and the next call continues.
func (g *Governor) Charges(ctx context.Context, from, to, since time.Time, pages int) ([]Charge, error) {
	file := "charges-" + from.UTC().Format("20060102")
	c, err := shared(ctx, g, "charges", file, func(c cached[[]Charge]) bool { return !c.At.Before(since) }, func() ([]Charge, error) {
		return g.chargePages(ctx, from, to, pages)
	})
	return c.Value, err
}

// chargePages continues to read a bill. The caller holds the lock of the cached answer.
func (g *Governor) chargePages(ctx context.Context, from, to time.Time, pages int) ([]Charge, error) {
	var b billing
	raw, err := place.ReadFile(g.billingFile())
	if err != nil || json.Unmarshal(raw, &b) != nil || !b.From.Equal(from) || !b.serves(g.Now()) {
		b = billing{Begun: g.Now(), From: from, To: to}
	}
	_ = os.Remove(g.billingFile()) // after an error, the next call starts again
	had := map[chargeKey]int{}
	for at, c := range b.Rows {
		had[chargeKey{c.Instance, c.From.Unix()}] = at
	}
	for range pages {
		page, next, err := g.API.Charges(ctx, b.From, b.To, b.Next)
		switch {
		case err != nil:
			return nil, err
		case next != "" && next == b.Next:
			return nil, failed(chargesOp, nil, 0, "the pages do not end")
		}
		b.add(page, had)
		b.Pages++
		if b.Next = next; next == "" {
			return b.Rows, nil
		}
		if b.Pages >= ChargePages {
			return nil, failed(chargesOp, nil, 0, "too many pages")
		}
	}
	raw, err = json.Marshal(b)
	if err == nil {
		err = os.WriteFile(g.billingFile(), raw, 0o600)
	}
	return nil, failed(chargesOp, errors.Join(ErrMore, err), 0, "")
}

// chargeKey identifies a row of a bill.
type chargeKey struct{ instance, from int64 }

// add adds a page. New charges between two calls move rows to the next page. Of a row that
// appears twice, the one with the later end counts.
func (b *billing) add(page []Charge, had map[chargeKey]int) {
	for _, c := range page {
		at, known := had[chargeKey{c.Instance, c.From.Unix()}]
		switch {
		case !known:
			b.Rows = append(b.Rows, c)
		case c.Until.After(b.Rows[at].Until):
			b.Rows[at] = c
		}
	}
}

// parseCharges parses a page of charges. Rows about something other than an instance are
// omitted. A row that cannot be parsed becomes a zero Charge.
func parseCharges(raw []byte) (page []Charge, next string, err error) {
	var answer struct {
		Success *bool             `json:"success"`
		Results []json.RawMessage `json:"results"`
		Next    *string           `json:"next_token"`
		Msg     string            `json:"msg"`
	}
	if json.Unmarshal(raw, &answer) != nil {
		return nil, "", errors.New("the answer is not a page of charges")
	}
	if answer.Success != nil && !*answer.Success {
		return nil, "", errors.New("the answer does not report success: " + answer.Msg)
	}
	if answer.Results == nil {
		return nil, "", errors.New("the answer has no list of charges")
	}
	for _, text := range answer.Results {
		var row struct {
			From     float64  `json:"start"`
			Until    float64  `json:"end"`
			Type     string   `json:"type"`
			Source   string   `json:"source"` // instance-ID
			Amount   *float64 `json:"amount"`
			Metadata struct {
				Label string `json:"label"`
			} `json:"metadata"`
		}
		err := json.Unmarshal(text, &row)
		number, ok := strings.CutPrefix(row.Source, "instance-")
		if err == nil && !ok && row.Type != "" && row.Type != "instance" {
			continue
		}
		id, notNumber := strconv.ParseInt(number, 10, 64)
		// The end must be known, as costs after it are estimated.
		if err != nil || notNumber != nil || id <= 0 || row.Amount == nil || row.From < 0 || row.Until <= 0 || row.Until > 1e11 {
			page = append(page, Charge{})
			continue
		}
		page = append(page, Charge{
			Instance: id, Label: row.Metadata.Label, Amount: *row.Amount,
			From: time.Unix(int64(row.From), 0).UTC(), Until: time.Unix(int64(row.Until), 0).UTC(),
		})
	}
	if answer.Next != nil {
		next = *answer.Next
	}
	return page, next, nil
}
