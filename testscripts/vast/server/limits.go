package server

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// limit refuses a request that comes too early, or one search too many for today.
func (s *Server) limit(r *http.Request) (answer, bool) {
	o := TheContract.Find(r.Method, r.URL.Path)
	if o == nil {
		return answer{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	if o.Name == "search_offers" && s.opt.Quota > 0 {
		if a, over := s.quota(now); over {
			return a, true
		}
	}
	interval, penalty := seconds(o.Interval*s.opt.Pace), seconds(o.Penalty*s.opt.Pace)
	if o.PerMinute > 0 {
		interval = seconds(60 / float64(o.PerMinute) * s.opt.Pace)
	}
	if interval == 0 {
		return answer{}, false
	}
	key := o.Name + " " + r.Header.Get("Authorization") + r.URL.Query().Get("api_key")
	next := s.pace[key]
	if next.Before(now) {
		next = now
	}
	burst := time.Duration(0)
	if o.PerMinute > 0 { // so many in a minute, at whatever time
		burst = interval * time.Duration(o.PerMinute-1)
	}
	wait := next.Sub(now) - burst
	if wait <= 0 {
		s.pace[key] = next.Add(interval)
		return answer{}, false
	}
	if penalty > wait {
		wait = penalty
		s.pace[key] = now.Add(penalty)
	}
	a := answer{status: http.StatusTooManyRequests, kind: "text/plain", body: []byte("API requests too frequent")}
	words := fmt.Sprintf("API requests too frequent endpoint threshold=%.1f", o.Interval)
	switch o.Limited {
	case "detail":
		a = reply(http.StatusTooManyRequests, map[string]string{"detail": words})
	case "error":
		a = refuse(http.StatusTooManyRequests, "rate_limit_exceeded", words)
	}
	if s.opt.RetryAfter {
		// Whole seconds where the market's pace is the documented one.
		after := strconv.FormatFloat(math.Ceil(wait.Seconds()*100)/100, 'f', -1, 64)
		if s.opt.Pace >= 1 {
			after = strconv.Itoa(int(math.Ceil(wait.Seconds())))
		}
		a.header = map[string]string{"Retry-After": after}
	}
	return a, true
}

// quota counts a search. The lock must be held.
func (s *Server) quota(now time.Time) (answer, bool) {
	if s.opt.QuotaReset.IsZero() {
		s.opt.QuotaReset = now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	}
	for !now.Before(s.opt.QuotaReset) {
		s.searches, s.opt.QuotaReset = 0, s.opt.QuotaReset.Add(24*time.Hour)
	}
	if s.searches++; s.searches <= s.opt.Quota {
		return answer{}, false
	}
	a := refuse(http.StatusTooManyRequests, "search_quota_exceeded", fmt.Sprintf("Daily search quota of %d exceeded", s.opt.Quota))
	// In whole seconds, and not before the reset.
	a.header = map[string]string{"X-RateLimit-Reset": strconv.FormatInt(s.opt.QuotaReset.Add(time.Second-1).Unix(), 10)}
	return a, true
}

// SetQuota changes how many searches a day are answered, and when that is filled again.
func (s *Server) SetQuota(n int, reset time.Time) {
	s.Do(func() { s.opt.Quota, s.opt.QuotaReset, s.searches = n, reset, 0 })
}

// AddKey adds a key of the account that may do only what these groups of permissions
// allow, such as instance_read.
func (s *Server) AddKey(key string, scopes ...string) { s.Do(func() { s.keys[key] = scopes }) }

// scope reports whether a key is one of those, and refuses what it may not do.
func (s *Server) scope(key, method, path string) (refused answer, scoped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	scopes, scoped := s.keys[key]
	if !scoped {
		return answer{}, false
	}
	need := "instance_write"
	if o := TheContract.Find(method, path); o != nil {
		need = o.Scope
	} else if method == http.MethodGet {
		need = "instance_read"
	}
	if need == "" || slices.Contains(scopes, need) {
		return answer{}, true
	}
	return refuse(http.StatusUnauthorized, "auth_error", "This key lacks the "+need+" permission group"), true
}

// ownForbidden reports whether an instance's own key may not do this with it.
func (s *Server) ownForbidden(method string, body []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in map[string]any
	_ = json.Unmarshal(body, &in) // other JSON than an object has no label
	_, label := in["label"]
	return s.MuteOwnKeys || s.StopOnlyKeys && method == http.MethodPut && label
}

// Refuse has all orders of an offer refused.
func (s *Server) Refuse(offer int64, r Refusal) { s.Do(func() { s.refused[offer] = r }) }

// LogOf has requests for the log of one instance refused, or answered again if r is nil.
func (s *Server) LogOf(id int64, r *Refusal) {
	s.Do(func() {
		if i := s.find(id); i != nil {
			i.LogRefused = r
		}
	})
}

// Change replaces fields of an instance's row in lists. A value of nil is null, Absent
// no field at all.
func (s *Server) Change(id int64, fields map[string]any) {
	s.Do(func() {
		if i := s.find(id); i != nil {
			i.Change = fields
		}
	})
}

// MinBid changes what others pay for an instance's machine: one whose bid is lower is
// stopped, and runs again when it is not any more.
func (s *Server) MinBid(id int64, price float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	if i == nil {
		return
	}
	i.Resume = price
	switch {
	case i.Bid > 0 && i.Bid < price && !i.Outbid:
		s.halt(i, "exited", "stopped")
		i.Outbid = true
	case i.Outbid && i.Bid >= price:
		i.Outbid, i.Intended = false, "running"
		s.run(i)
	}
}

func change(row, fields map[string]any) {
	for name, v := range fields {
		if v == Absent {
			delete(row, name)
		} else {
			row[name] = v
		}
	}
}

// elsewhere is the server's own address by another name.
func (s *Server) elsewhere() string {
	if strings.Contains(s.opt.URL, "127.0.0.1") {
		return strings.Replace(s.opt.URL, "127.0.0.1", "localhost", 1)
	}
	return s.opt.URL
}

// RealNow is the time without the market's own pace, as clients have it.
func (s *Server) RealNow() time.Time { return clock.Now() }
