// Package web makes HTTP clients that keep secrets and bodies with the host and the scheme for which they are meant.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// maxRedirects is how many redirects of one request are followed.
const maxRedirects = 5

// Errors of redirects.
var (
	ErrRedirects = fmt.Errorf("more than %d redirects", maxRedirects)
	ErrAddress   = errors.New("redirected to an address that is not safe")
)

// New returns a client with the transport of the process's own; more changes it.
func New(more func(*http.Transport)) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = 1 << 20
	if more != nil {
		more(t)
	}
	return &http.Client{Transport: t, CheckRedirect: Redirect}
}

// Guard returns a client like this one whose redirects are those of Redirect.
func Guard(c *http.Client) *http.Client {
	guarded := *c
	guarded.CheckRedirect = Redirect
	return &guarded
}

type leaves struct{}

// Leaves returns a context for a request that may be redirected to another host, as a service does for what lies in
// its object store. The credentials of the request are not sent there.
func Leaves(ctx context.Context) context.Context { return context.WithValue(ctx, leaves{}, true) }

// secrets are the headers that may carry one.
var secrets = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// Redirect is the CheckRedirect of every client: a request that changes something, or that carries a secret, follows no
// redirect, whatever its status. Its answer is then the redirect itself. Other requests do not go from https to http,
// except to this machine.
func Redirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	left := first.Context().Value(leaves{}) != nil
	if first.Method != http.MethodGet && first.Method != http.MethodHead || first.Body != nil && first.Body != http.NoBody {
		return http.ErrUseLastResponse
	}
	for _, name := range secrets {
		if first.Header.Get(name) != "" && !left {
			return http.ErrUseLastResponse
		}
		req.Header.Del(name)
	}
	req.Header.Del("Referer") // an address may be signed
	switch {
	case len(via) > maxRedirects:
		return ErrRedirects
	case req.URL.Host == "", req.URL.User != nil,
		req.URL.Scheme != "https" && req.URL.Scheme != "http",
		req.URL.Scheme == "http" && first.URL.Scheme == "https" && !Loopback(req.URL):
		return ErrAddress
	}
	return nil
}

// Private reports whether what is sent to an address cannot be read on the way.
func Private(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "http" && Loopback(u) }

// Loopback reports whether an address is on this machine.
func Loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
