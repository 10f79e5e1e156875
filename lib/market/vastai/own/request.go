package own

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // for images without certificates
)

// The longest wait for an answer, and the longest answer.
const (
	limit = 20 * time.Second
	most  = 1 << 20
)

// request sends one request, and follows no redirect: the key stays with the market. It speaks HTTP/1.0 itself, as net/http
// would be most of the program.
func request(ctx context.Context, method, address, body, key string) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return 0, nil, errors.New("invalid URL")
	}
	if strings.ContainsAny(method+u.Host+u.RequestURI()+key, " \t\r\n") {
		return 0, nil, errors.New("invalid request: a blank or a line break")
	}
	conn, err := dial(ctx, u)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return 0, nil, err
		}
	}
	var request bytes.Buffer
	fmt.Fprintf(&request,
		"%s %s HTTP/1.0\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, u.RequestURI(), u.Host, key, len(body), body)
	if _, err := conn.Write(request.Bytes()); err != nil {
		return 0, nil, err
	}
	r := bufio.NewReader(io.LimitReader(conn, most))
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, nil, err
	}
	version, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	code, _, _ := strings.Cut(rest, " ")
	if status, err = strconv.Atoi(code); err != nil || !strings.HasPrefix(version, "HTTP/1.") {
		return 0, nil, errOdd
	}
	length := most
	for line != "\r\n" && line != "\n" {
		if line, err = r.ReadString('\n'); err != nil {
			return status, nil, err
		}
		name, value, _ := strings.Cut(line, ":")
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && n >= 0 && strings.EqualFold(name, "Content-Length") {
			length = n
		}
	}
	answer, err = io.ReadAll(io.LimitReader(r, int64(length)))
	return status, answer, err
}

func dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	// Go's resolver, as a C library may be missing.
	d := net.Dialer{Resolver: &net.Resolver{PreferGo: true}}
	address := net.JoinHostPort(u.Hostname(), port)
	if u.Scheme == "http" {
		return d.DialContext(ctx, "tcp", address)
	}
	return (&tls.Dialer{NetDialer: &d, Config: &tls.Config{MinVersion: tls.VersionTLS12}}).DialContext(ctx, "tcp", address)
}
