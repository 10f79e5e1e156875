package vastai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// chargePages bounds how many pages of charges are read. The market gives at most 500 on a
// page, and the vastai program 100.
const (
	chargePages = 20
	chargesREST = 500
	chargesCLI  = 100
)

// Charges asks for what was billed for instances.
func (r *REST) Charges(ctx context.Context, from, to time.Time) ([]Charge, error) {
	return charges(func(after string) ([]byte, error) {
		filter, err := json.Marshal(map[string]any{
			"day": map[string]int64{"gte": from.Unix(), "lte": to.Unix()}, "type": map[string]any{"in": []string{"instance"}},
		})
		if err != nil {
			return nil, err
		}
		query := url.Values{"select_filters": {string(filter)}, "format": {"table"}, "latest_first": {"true"}, "limit": {strconv.Itoa(chargesREST)}}
		if after != "" {
			query.Set("after_token", after)
		}
		return r.repeat(ctx, chargesOp, http.MethodGet, "/api/v0/charges/?"+query.Encode(), nil)
	})
}

// Charges asks for what was billed for instances.
func (c *CLI) Charges(ctx context.Context, from, to time.Time) ([]Charge, error) {
	return charges(func(after string) ([]byte, error) {
		args := []string{"show", "invoices-v1", "--charges", "--charge-type", "instance", "--start-date", strconv.FormatInt(from.Unix(), 10),
			"--end-date", strconv.FormatInt(to.Unix(), 10), "--limit", strconv.Itoa(chargesCLI), "--latest-first"}
		if after != "" {
			args = append(args, "--next-token", after)
		}
		return c.repeat(ctx, chargesOp, append(args, common...)...)
	})
}

const chargesOp = "charges"

// charges reads all pages of charges.
func charges(get func(after string) ([]byte, error)) ([]Charge, error) {
	var out []Charge
	after := ""
	for range chargePages {
		raw, err := get(after)
		if err != nil {
			return nil, err
		}
		page, next, err := parseCharges(raw)
		if err != nil {
			return nil, failed(chargesOp, nil, 0, err.Error())
		}
		out = append(out, page...)
		if next == "" {
			return out, nil
		}
		if next == after {
			return nil, failed(chargesOp, nil, 0, "the pages do not end")
		}
		after = next
	}
	return nil, failed(chargesOp, nil, 0, "there are too many pages")
}

// parseCharges reads a page of charges. Rows that are not about an instance are left out.
func parseCharges(raw []byte) (page []Charge, next string, err error) {
	var answer struct {
		Success *bool             `json:"success"`
		Results []json.RawMessage `json:"results"`
		Next    *string           `json:"next_token"`
		Msg     string            `json:"msg"`
	}
	if json.Unmarshal(raw, &answer) != nil {
		return nil, "", errors.New("the answer is no page of charges")
	}
	if answer.Success != nil && !*answer.Success {
		return nil, "", errors.New("the answer does not say success: " + answer.Msg)
	}
	if answer.Results == nil {
		return nil, "", errors.New("the answer has no charges, not even none")
	}
	for _, text := range answer.Results {
		var row struct {
			From     float64  `json:"start"`
			Until    float64  `json:"end"`
			Source   string   `json:"source"` // instance-ID
			Amount   *float64 `json:"amount"`
			Metadata struct {
				Label string `json:"label"`
			} `json:"metadata"`
		}
		if json.Unmarshal(text, &row) != nil || row.Amount == nil || row.From < 0 || row.Until <= 0 || row.Until > 1e11 {
			continue // until when it is has to be known: what is not billed yet is estimated
		}
		number, ok := strings.CutPrefix(row.Source, "instance-")
		id, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || id <= 0 {
			continue
		}
		page = append(page, Charge{
			Instance: id, Label: row.Metadata.Label, From: time.Unix(int64(row.From), 0).UTC(), Until: time.Unix(int64(row.Until), 0).UTC(), Amount: *row.Amount,
		})
	}
	if answer.Next != nil {
		next = *answer.Next
	}
	return page, next, nil
}
