package vastai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/web"
)

// DefaultURL is the address of the market.
const DefaultURL = "https://console.vast.ai"

// REST is the transport by the market's REST API.
type REST struct {
	URL    string // default: DefaultURL
	Key    string
	Client *http.Client
	transport
}

// Limits of answers and timeouts.
const (
	maxAnswer = 32 << 20
	callTime  = time.Minute
)

// NewREST returns the REST transport.
func NewREST(address, key string) *REST {
	if address == "" {
		address = DefaultURL
	}
	client := web.New(nil)
	client.Timeout = callTime
	return &REST{URL: strings.TrimRight(address, "/"), Key: key, Client: client, transport: patient}
}

// Name returns "api".
func (r *REST) Name() string { return "api" }

// once makes one request and returns the body of a JSON answer with status 200.
func (r *REST) once(ctx context.Context, op, method, path string, body any) ([]byte, error) {
	return r.order(ctx, op, method, path, body, Order{})
}

// order is once for an order, whose secrets are hidden in messages.
func (r *REST) order(ctx context.Context, op, method, path string, body any, o Order) ([]byte, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.URL+path, in)
	if err != nil {
		return nil, failed(op, ErrInvalid, 0, "invalid address")
	}
	req.Header.Set("Authorization", "Bearer "+r.Key)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "ponos")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if err := keepPace(ctx, r.pace, op); err != nil {
		return nil, err
	}
	resp, err := r.Client.Do(req)
	if err != nil {
		var late interface{ Timeout() bool }
		e := &callError{op: op, kind: ErrUnknown, late: errors.As(err, &late) && late.Timeout()}
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address
		}
		if e.words = clean(fault.Text(err)); e.late {
			e.words = "no answer in time"
		}
		return nil, hinted(e)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil || len(raw) > maxAnswer {
		return nil, failed(op, ErrUnknown, 0, "the answer was cut off")
	}
	if resp.StatusCode != http.StatusOK {
		words := wordsOf(hide(raw, o))
		kind := outcome(op, resp.StatusCode, words)
		if op == orderOp && resp.StatusCode == http.StatusBadRequest && words == "" {
			kind = ErrCredit // the market sometimes reports missing credit like this
		}
		if kind == nil {
			kind = ErrUnknown // for example, a redirect
		}
		e := &callError{op: op, kind: kind, status: resp.StatusCode, words: clean(words)}
		if resp.StatusCode == http.StatusTooManyRequests {
			e.until = pacing(r.now(), errors.Is(kind, ErrQuota), resp.Header, words)
		}
		return nil, hinted(e)
	}
	if !json.Valid(raw) {
		return nil, failed(op, ErrUnknown, resp.StatusCode, "the answer is not JSON")
	}
	return raw, nil
}

// wordsOf returns the message of an answer that reports an error.
func wordsOf(raw []byte) string {
	var said struct {
		Error  any `json:"error"`
		Msg    any `json:"msg"`
		Detail any `json:"detail"`
	}
	if json.Unmarshal(raw, &said) != nil {
		return string(raw[:min(len(raw), 300)])
	}
	var words []string
	for _, v := range []any{said.Error, said.Msg, said.Detail} {
		if s, ok := v.(string); ok && s != "" {
			words = append(words, s)
		}
	}
	return strings.Join(words, ": ")
}

// repeat makes a request that is safe to retry.
func (r *REST) repeat(ctx context.Context, op, method, path string, body any) ([]byte, error) {
	wait := r.Wait
	for try := 1; ; try++ {
		raw, err := r.once(ctx, op, method, path, body)
		if err == nil || try >= r.Tries || !again(err) || ctx.Err() != nil {
			return raw, err
		}
		delay := wait + time.Duration(rand.Int64N(int64(wait)/4+1))
		if until := Until(err); !until.IsZero() {
			if told := until.Sub(r.now()); told > 2*r.Wait {
				return nil, err // too long to wait here
			} else if told > delay {
				delay = told
			}
		}
		if !pause(ctx, delay) {
			return nil, err
		}
		wait *= 2
	}
}

// again reports whether a failed call may be retried at once.
func again(err error) bool {
	var e *callError
	if errors.As(err, &e) && (e.held || e.late) {
		return false
	}
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrUnknown)
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Account returns the account of the key.
func (r *REST) Account(ctx context.Context) (Account, error) {
	raw, err := r.repeat(ctx, "account", http.MethodGet, "/api/v0/users/current/", nil)
	if err != nil {
		return Account{}, err
	}
	return parseAccount(raw)
}

func parseAccount(raw []byte) (Account, error) {
	var a struct {
		ID     int64    `json:"id"`
		Credit *float64 `json:"credit"`
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Credit == nil {
		return Account{}, failed("account", nil, 0, "the answer does not contain the credit")
	}
	return Account{a.ID, *a.Credit}, nil
}

// Search returns offers.
func (r *REST) Search(ctx context.Context, s Search) (Found, error) {
	body := s.Filters.body()
	body["order"], body["type"], body["allocated_storage"] = [][]string{{"dph_total", "asc"}}, s.kind(), s.Disk
	if s.Limit > 0 {
		body["limit"] = s.Limit
	}
	raw, err := r.repeat(ctx, "search", http.MethodPost, "/api/v0/bundles/", body)
	if err != nil {
		return Found{}, err
	}
	var answer struct {
		Offers json.RawMessage `json:"offers"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Offers == nil {
		return Found{}, failed("search", nil, 0, "the answer has no list of offers")
	}
	found, err := parseOffers(answer.Offers)
	if err != nil {
		return Found{}, failed("search", nil, 0, fault.Text(err))
	}
	return found, nil
}

// kind returns the market's name for the kind of contract.
func (s Search) kind() string {
	if s.Bid {
		return "bid"
	}
	return "on-demand"
}

// Create orders an instance, once.
func (r *REST) Create(ctx context.Context, offer int64, o Order) (Created, error) {
	if err := o.Check(); err != nil {
		return Created{}, err
	}
	body := map[string]any{
		"client_id": "me", "image": o.Image, "env": o.Env, "price": nil, "disk": o.Disk, "label": o.Label, "extra": nil,
		"onstart": o.Entrypoint, "args": o.Args, "runtype": "args", "image_login": nil, "python_utf8": false, "lang_utf8": false,
		"use_jupyter_lab": false, "jupyter_dir": nil, "force": false,
		// If the machine is not available, create nothing: a stopped instance would be billed.
		"cancel_unavail": true, "template_hash_id": nil, "user": nil, "target_state": "running",
	}
	if o.Login != "" {
		body["image_login"] = o.Login
	}
	if o.Bid > 0 {
		body["price"] = o.Bid
	}
	raw, err := r.order(ctx, orderOp, http.MethodPut, "/api/v0/asks/"+strconv.FormatInt(offer, 10)+"/", body, o)
	if err != nil {
		return Created{}, err
	}
	return parseCreated(hide(raw, o))
}

// orderOp is the operation that can cost money.
const orderOp = "order"

// parseCreated parses the answer to an order.
func parseCreated(raw []byte) (Created, error) {
	var answer struct {
		Success  *bool           `json:"success"`
		Contract json.RawMessage `json:"new_contract"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return Created{}, failed(orderOp, ErrUnknown, 0, "the answer is not an object")
	}
	var id any
	_ = json.Unmarshal(answer.Contract, &id) // a missing id is handled below
	created := Created{ID: flexID(id)}
	words := wordsOf(raw)
	switch {
	case answer.Success != nil && *answer.Success && created.ID > 0:
		return created, nil
	case created.ID > 0:
		return created, failed(orderOp, ErrOfferGone, 0, "the answer has a contract, but does not report success: "+words)
	case answer.Success != nil && !*answer.Success:
		if kind := outcome(orderOp, http.StatusBadRequest, words); kind != nil {
			return created, failed(orderOp, kind, 0, words)
		}
	}
	return created, failed(orderOp, ErrUnknown, 0, "the answer names no instance")
}

// List returns all instances, or those with a label.
func (r *REST) List(ctx context.Context, label string) (Listing, error) {
	return collect(r.now(), label, func(after string) ([]byte, error) {
		query := url.Values{"order_by": {`[{"col":"id","dir":"asc"}]`}, "limit": {"25"}}
		if label != "" {
			filter, err := json.Marshal(map[string]any{"label": map[string]string{"eq": label}})
			if err != nil {
				return nil, err
			}
			query.Set("select_filters", string(filter))
		}
		if after != "" {
			query.Set("after_token", after)
		}
		return r.repeat(ctx, "list of instances", http.MethodGet, "/api/v1/instances/?"+query.Encode(), nil)
	})
}

// Show asks for one instance.
func (r *REST) Show(ctx context.Context, id int64) (*Instance, error) {
	op := showOp(id)
	raw, err := r.repeat(ctx, op, http.MethodGet, "/api/v0/instances/"+strconv.FormatInt(id, 10)+"/", nil)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseShown(op, raw, id)
}

func showOp(id int64) string { return fmt.Sprintf("show %d", id) }

// parseShown parses an answer to a request for one instance: {"instances": ROW}, with null in place of
// the row if there is none; the vastai program prints the row alone.
func parseShown(op string, raw []byte, id int64) (*Instance, error) {
	var answer map[string]json.RawMessage
	_ = json.Unmarshal(raw, &answer) // what is not an object has no row
	row, wrapped := answer["instances"]
	if wrapped && string(row) == "null" {
		return nil, nil
	}
	if !wrapped {
		row = raw
	}
	i, err := parseInstance(row)
	if err != nil || i.ID != id {
		return nil, failed(op, ErrUnknown, 0, "the answer is not this instance")
	}
	return &i, nil
}

// Destroy destroys instances.
func (r *REST) Destroy(ctx context.Context, ids ...int64) error {
	op, path, body := destroyOp(ids), "/api/v0/instances/", map[string]any{}
	if len(ids) == 1 {
		path += strconv.FormatInt(ids[0], 10) + "/"
	} else {
		body["instance_ids"] = ids
	}
	raw, err := r.repeat(ctx, op, http.MethodDelete, path, body)
	if len(ids) == 1 && isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return succeeded(op, raw)
}

func destroyOp(ids []int64) string {
	if len(ids) == 1 {
		return fmt.Sprintf("destroy %d", ids[0])
	}
	return fmt.Sprintf("destroy %d instances", len(ids))
}

// isGone reports whether a call failed because the instance does not exist. A 404 can also mean
// an invalid key.
func isGone(err error) bool {
	var e *callError
	if !errors.As(err, &e) {
		return false
	}
	for _, code := range []string{"no_such_instance", "instances_not_found"} {
		if strings.Contains(e.words, code) {
			return true
		}
	}
	return e.status == http.StatusNotFound && strings.Contains(e.words, "not_found")
}

func succeeded(op string, raw []byte) error {
	var answer struct {
		Success bool `json:"success"`
	}
	if json.Unmarshal(raw, &answer) != nil || !answer.Success {
		return failed(op, ErrUnknown, 0, wordsOf(raw))
	}
	return nil
}
