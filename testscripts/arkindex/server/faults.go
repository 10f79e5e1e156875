package server

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Fault is what goes wrong with the next requests of an operation.
type Fault struct {
	Operation string `json:"operation"` // "": any
	Count     int    `json:"count"`     // how often; 0: once; -1: for ever
	After     int    `json:"after"`     // how many requests go well before
	// Kind is what happens:
	//   status   the status, with a JSON explanation
	//   html     the status (200 if none) with a page
	//   half     the true answer, cut in the middle
	//   empty    status 200 and nothing
	//   huge     a JSON answer of 64 MiB
	//   slow     the true answer, after Delay
	//   reset    the connection is cut, nothing was done
	//   lost     it is done, but the connection is cut instead of an answer
	//   token    the status, with an explanation that repeats the credential
	//   redirect the status, with Location
	Kind       string        `json:"kind"`
	Status     int           `json:"status"`
	Location   string        `json:"location"`
	RetryAfter int           `json:"retry_after"` // seconds
	Delay      time.Duration `json:"delay"`
}

// Break makes a fault happen.
func (s *Server) Break(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Count == 0 {
		f.Count = 1
	}
	s.faults = append(s.faults, &f)
}

// Mend ends all faults.
func (s *Server) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// fault takes the next fault for an operation, if there is one.
func (s *Server) fault(operation string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.Operation != "" && f.Operation != operation || f.Count == 0 {
			continue
		}
		if f.After > 0 {
			f.After--
			continue
		}
		if f.Count > 0 {
			f.Count--
		}
		return f
	}
	return nil
}

// acts reports whether the operation is performed in spite of the fault.
func (f *Fault) acts() bool {
	switch f.Kind {
	case "half", "slow", "lost":
		return true
	}
	return false
}

// cuts reports whether the client gets no answer.
func (f *Fault) cuts() bool { return f.Kind == "reset" || f.Kind == "lost" }

// answer is what is answered instead of the true answer.
func (f *Fault) answer() answer {
	switch f.Kind {
	case "html":
		a := notThere()
		a.status = max(f.Status, http.StatusOK)
		return a
	case "empty":
		return answer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}}}
	case "redirect":
		return answer{status: f.Status, header: http.Header{"Location": {f.Location}}}
	case "huge":
		body := append([]byte(`{"actions": [], "x": "`), bytes.Repeat([]byte("x"), 64<<20)...)
		return answer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}}, body: append(body, `"}`...)}
	}
	a := failure(f.Status, "fault", fmt.Sprintf("A fault: %d.", f.Status))
	if f.RetryAfter > 0 {
		a.header.Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	return a
}

// write answers as the fault wants it.
func (f *Fault) write(w http.ResponseWriter, r *http.Request, a answer) {
	switch f.Kind {
	case "reset", "lost":
		panic(http.ErrAbortHandler)
	case "slow":
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
		}
	case "half":
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
		a.body = a.body[:len(a.body)/2]
		a.write(w)
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		panic(http.ErrAbortHandler)
	case "token":
		a = failure(a.status, "fault", "You sent "+r.Header.Get("Authorization")+" "+r.URL.RawQuery)
	}
	a.write(w)
}
