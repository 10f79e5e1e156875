package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/needs"
)

// TestRedirects: whatever the status, a server that redirects gets a secret or a body of a client to no other place.
func TestRedirects(t *testing.T) {
	needs.Localhost(t)
	var mu sync.Mutex
	var seen []string
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Method+" "+r.Header.Get("Authorization")+r.Header.Get("Cookie")+r.Header.Get("Referer")+string(body))
	}))
	defer thief.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(thief.URL, "127.0.0.1", "localhost", 1), status)
		}))
		client := Guard(front.Client())
		for _, tt := range []struct {
			method, header, body string
			leaves               bool
			want                 string // what the other host sees
		}{
			{method: "POST", body: "seed"}, {method: "PUT", body: "seed"}, {method: "DELETE"}, {method: "PATCH", body: "{}", header: "Authorization"},
			{method: "GET", header: "Authorization"}, {method: "GET", header: "Cookie"}, {method: "GET", body: "seed"},
			{method: "GET", header: "Authorization", leaves: true, want: "GET "}, {method: "GET", want: "GET "},
		} {
			ctx := t.Context()
			if tt.leaves {
				ctx = Leaves(ctx)
			}
			var body io.Reader
			if tt.body != "" {
				body = strings.NewReader(tt.body)
			}
			req, err := http.NewRequestWithContext(ctx, tt.method, front.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			if tt.header != "" {
				req.Header.Set(tt.header, "secret")
			}
			seen = nil
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%d %+v: %v", status, tt, err)
			}
			_ = resp.Body.Close()
			if got := strings.Join(seen, ","); got != tt.want || tt.want == "" && resp.StatusCode != status {
				t.Errorf("%d %+v: the answer is %s, and the other host got %q", status, tt, resp.Status, got)
			}
		}
		front.Close()
	}
}

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		ok       bool
	}{
		{"https://a/x", "https://b/x", true}, {"https://a/x", "http://b/x", false}, {"https://a/x", "http://a/x", false}, {"http://a/x", "http://b/x", true},
		{"https://a/x", "http://127.0.0.1/x", true}, {"https://a/x", "file:///etc/passwd", false}, {"https://a/x", "https://u:p@b/x", false}, {"https://a/x", "ftp://b/x", false},
	} {
		request := func(address string) *http.Request {
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			return (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).WithContext(t.Context())
		}
		if err := Redirect(request(tt.to), []*http.Request{request(tt.from)}); (err == nil) != tt.ok {
			t.Errorf("%s to %s: %v", tt.from, tt.to, err)
		}
	}
	for address, private := range map[string]bool{"https://a": true, "http://a": false, "http://localhost:8000": true, "http://[::1]": true, "http://127.0.0.1.evil.org": false, "ftp://localhost": false} {
		u, err := url.Parse(address)
		if err != nil || Private(u) != private {
			t.Errorf("%s: private %v, %v", address, !private, err)
		}
	}
}
