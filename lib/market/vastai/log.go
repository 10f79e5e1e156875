package vastai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/web"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	maxLog = 64 << 20
	// logTries limits the tries to fetch a log, which the host uploads after the request.
	logTries = 8
)

// Log requests the output of an instance, and fetches it when it is available.
func (r *REST) Log(ctx context.Context, id int64, lines int) ([]byte, error) {
	op := fmt.Sprintf("log of %d", id)
	path := fmt.Sprintf("/api/v0/instances/request_logs/%d/", id)
	raw, err := r.once(ctx, op, http.MethodPut, path, map[string]string{"tail": strconv.Itoa(lines)})
	if err != nil {
		var e *callError
		if errors.As(err, &e) && strings.Contains(e.words, "is starting") {
			return nil, failed(op, ErrNotReady, 0, "")
		}
		return nil, err
	}
	var answer struct {
		URL string `json:"result_url"`
	}
	if json.Unmarshal(raw, &answer) != nil || answer.URL == "" {
		return nil, failed(op, ErrNotReady, 0, wordsOf(raw))
	}
	wait := r.Wait / 8
	for range logTries {
		if !pause(ctx, wait) {
			break
		}
		var text []byte
		var later bool
		if text, later, err = r.fetch(ctx, op, answer.URL); !later {
			return text, err
		}
		wait = min(wait*2, 2*r.Wait)
	}
	if err == nil {
		err = failed(op, ErrNotReady, 0, "")
	}
	return nil, err
}

var errAddress = errors.New("its address is not valid")

// fetch fetches a log. It does not send the key, as the address and its redirects lead to other
// hosts. later reports whether a retry may help.
func (r *REST) fetch(ctx context.Context, op, address string) (text []byte, later bool, err error) {
	u, err := url.Parse(address)
	if err != nil || !fetchable(u) {
		return nil, false, failed(op, ErrNotReady, 0, errAddress.Error())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, false, failed(op, ErrNotReady, 0, errAddress.Error())
	}
	resp, err := web.Guard(r.Client).Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address
		}
		return nil, !errors.Is(err, web.ErrAddress) && !errors.Is(err, web.ErrRedirects), failed(op, ErrNotReady, 0, fault.Text(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, true, failed(op, ErrNotReady, resp.StatusCode, "")
	}
	text, err = io.ReadAll(io.LimitReader(resp.Body, maxLog+1))
	if err != nil { // truncated: retry
		return nil, true, failed(op, ErrNotReady, 0, "it was cut off")
	}
	if len(text) > maxLog { // its end is what matters
		return nil, false, failed(op, ErrNotReady, 0, fmt.Sprintf("it is longer than %d MiB", maxLog>>20))
	}
	return text, false, nil
}

// fetchable reports whether a log may be fetched from an address.
func fetchable(u *url.URL) bool {
	return u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http")
}
