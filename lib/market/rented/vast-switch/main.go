// Vast-switch sends one request to the market, from the container of an instance whose image has no
// HTTP client: the wrapper of package rented downloads and runs it to label, stop and destroy the
// instance.
//
//	K=KEY vast-switch METHOD URL BODY
//
// The key is in the environment, as every user of a machine can read arguments. The exit status is 0
// if the request succeeded, else 1. Without arguments it does nothing, which shows whether it can be
// run at all. It needs no file of the image: CA certificates and the resolver are built in. It
// implements HTTP/1.0 itself, as net/http would be most of its size.
package main

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
	"os"
	"strings"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // for images without certificates
)

const limit = 20 * time.Second

func main() {
	if len(os.Args) == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := run(ctx, os.Args[1:], os.Getenv("K")); err != nil {
		fmt.Fprintln(os.Stderr, "vast-switch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, key string) error {
	if len(args) != 3 {
		return errors.New("usage: K=KEY vast-switch METHOD URL BODY")
	}
	method, body := args[0], args[2]
	u, err := url.Parse(args[1])
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("invalid URL")
	}
	if strings.ContainsAny(method+u.Host+u.RequestURI()+key, " \t\r\n") {
		return errors.New("invalid request: a blank or a line break")
	}
	conn, err := dial(ctx, u)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	var request bytes.Buffer
	fmt.Fprintf(&request,
		"%s %s HTTP/1.0\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, u.RequestURI(), u.Host, key, len(body), body)
	if _, err := conn.Write(request.Bytes()); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, 4096)).ReadString('\n')
	if err != nil {
		return err
	}
	_, status, _ := strings.Cut(strings.TrimSpace(line), " ")
	if !strings.HasPrefix(line, "HTTP/1.") || !strings.HasPrefix(status, "2") {
		return errors.New("refused: status " + status)
	}
	return nil
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
