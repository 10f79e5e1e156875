// Package outage serves repositories and packages as real servers do, and breaks as they do: for git, pip and
// whatever asks by HTTP.
package outage

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Fault is what a server does instead of answering: a status such as "502", or one of these. The zero value is none.
type Fault string

// Faults that are no status.
const (
	Refused Fault = "refused" // nothing listens
	Hangs   Fault = "hangs"   // it listens, and answers nothing until the fault ends
	Cut     Fault = "cut"     // half of the true answer, and the connection is reset
	Page    Fault = "page"    // 200 and a page of somebody else, as a proxy answers
)

// Server is one that listens on loopback at a port of its own, also while it is down.
type Server struct {
	Address string // host and port

	handler http.Handler
	mu      sync.Mutex
	fault   Fault
	mended  chan struct{} // closed when the fault ends
	web     *http.Server  // nil: nothing listens
	asked   int
}

// Serve starts a server. Close ends it.
func Serve(handler http.Handler) (*Server, error) {
	s := &Server{handler: handler, mended: make(chan struct{})}
	close(s.mended)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.Address = l.Addr().String()
	s.listen(l)
	return s, nil
}

func (s *Server) listen(l net.Listener) {
	web := &http.Server{Handler: http.HandlerFunc(s.answer), ReadHeaderTimeout: time.Minute, ErrorLog: nil}
	s.web = web
	go func() { _ = web.Serve(l) }()
}

// Break has the server break until the next call; "" mends it.
func (s *Server) Break(f Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.mended:
	default:
		close(s.mended)
	}
	s.fault = f
	if f != "" {
		s.mended = make(chan struct{})
	}
	if f == Refused && s.web != nil {
		web := s.web
		s.web = nil
		return web.Close()
	}
	if f == Refused || s.web != nil {
		return nil
	}
	// What was refused may still be about to let go of the port.
	for range 100 {
		l, err := net.Listen("tcp", s.Address)
		if err == nil {
			s.listen(l)
			return nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s: %w", s.Address, syscall.EADDRINUSE)
}

// Asked is how many requests have come.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// Close ends the server for good.
func (s *Server) Close() error {
	return s.Break(Refused)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault, mended := s.fault, s.mended
	s.asked++
	s.mu.Unlock()
	status := 0
	switch fault {
	case "":
		s.handler.ServeHTTP(w, r)
	case Hangs:
		select {
		case <-mended:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	case Cut:
		whole := httptest.NewRecorder()
		s.handler.ServeHTTP(whole, r)
		for name, values := range whole.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", fmt.Sprint(whole.Body.Len()+1))
		w.WriteHeader(whole.Code)
		_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case Page:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!DOCTYPE html><title>Welcome</title><p>Please log in to the network.")
	default:
		if _, err := fmt.Sscan(string(fault), &status); err != nil {
			panic(fmt.Sprintf("outage: unknown fault %q", fault))
		}
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
		}
		http.Error(w, http.StatusText(status), status)
	}
}

// Git serves the repositories of a directory, as git hosts do.
func Git(dir string) (http.Handler, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env: []string{
			"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		},
	}, nil
}

// Index is a package index at /simple/, with each version of packages of one module that has a line of text.
func Index(packages map[string][]string) (http.Handler, error) {
	mux := http.NewServeMux()
	for name, versions := range packages {
		var links strings.Builder
		for _, version := range versions {
			wheel, err := wheel(name, version)
			if err != nil {
				return nil, err
			}
			file := fmt.Sprintf("%s-%s-py3-none-any.whl", name, version)
			fmt.Fprintf(&links, "<a href=\"/files/%[1]s\">%[1]s</a>\n", file)
			mux.HandleFunc("GET /files/"+file, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/octet-stream")
				_, _ = w.Write(wheel)
			})
		}
		page := "<!DOCTYPE html><html><body>\n" + links.String() + "</body></html>\n"
		mux.HandleFunc("GET /simple/"+name+"/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, page)
		})
	}
	mux.HandleFunc("GET /simple/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!DOCTYPE html><html><body></body></html>\n")
	})
	return mux, nil
}

// wheel is a package of one module, of which VERSION is its version.
func wheel(name, version string) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	for _, f := range [][2]string{
		{name + ".py", fmt.Sprintf("VERSION = %q\n", version)},
		{info + "METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: outage\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", fmt.Sprintf("%s.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n", name, info, info, info)},
	} {
		w, err := z.Create(f[0])
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, f[1]); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
