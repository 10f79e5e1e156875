package server

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// imageSize is what an image is taken to have, in GB.
const imageSize = 4

// until is what an instance has cost until a time: the GPU while it ran, the disk from
// order to destruction, and the image's traffic.
func (s *Server) until(i *Instance, end time.Time) float64 {
	gpu, disk, down := s.parts(i, end)
	return gpu + disk + down
}

// parts are those of until.
func (s *Server) parts(i *Instance, end time.Time) (gpu, disk, down float64) {
	ran := i.GPUTime
	if !i.runSince.IsZero() {
		ran += max(0, end.Sub(i.runSince))
	}
	hourly := num(i.Offer["storage_cost"]) * i.Disk / 730
	return ran.Hours() * s.hourly(i), max(0, end.Sub(i.Created)).Hours() * hourly, imageSize * num(i.Offer["inet_down_cost"])
}

// hourly is the price of an instance's GPUs: what was bid, or what was offered.
func (s *Server) hourly(i *Instance) float64 {
	if i.Bid > 0 {
		return i.Bid
	}
	return num(i.Offer["dph_base"])
}

func (s *Server) cost(i *Instance) float64 {
	end := i.Destroyed
	if end.IsZero() {
		end = s.now()
	}
	return s.until(i, end)
}

// due notes that an instance is of no more use to anybody: what it costs from now on
// is lost. The lock must be held.
func (s *Server) due(i *Instance) {
	if i.Due.IsZero() {
		i.Due = s.now()
		i.Ideal = s.until(i, i.Due)
	}
}

// heard notes that a container has said its last word, if it has, at the time of that.
func (s *Server) heard(i *Instance) {
	if s.opt.Dir == "" || !i.Due.IsZero() {
		return
	}
	path := filepath.Join(s.opt.Dir, strconv.FormatInt(i.ID, 10), "log")
	text, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if err == nil && statErr == nil && strings.Contains(string(text), "PONOS-EXIT") {
		i.Due = s.at(clock.Modified(info))
		i.Ideal = s.until(i, i.Due)
	}
}

// Due notes the same, for a test that knows better.
func (s *Server) Due(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i != nil {
		i.Due = time.Time{}
		s.due(i)
	}
}

// ownWord hears a container say by its own key that it has done its work.
func (s *Server) ownWord(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.instances {
		if r.Header.Get("Authorization") == "Bearer "+i.Key {
			s.due(i)
		}
	}
}

// Meter is what all instances whose labels begin so have cost so far, in dollars.
func (s *Server) Meter(label string) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0.0
	for _, i := range s.instances {
		if strings.HasPrefix(i.Label, label) {
			total += s.cost(i)
		}
	}
	return total
}

// Ideal is what n instances with such labels would have cost, had each been destroyed
// as soon as it was of no more use, and what the dearest attempt would have.
func (s *Server) Ideal(label string, n int) (total, attempt float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var costs []float64
	for _, i := range s.instances {
		if strings.HasPrefix(i.Label, label) && !i.Due.IsZero() {
			costs = append(costs, i.Ideal)
		}
	}
	slices.Sort(costs)
	for k, c := range costs {
		if k < n {
			total += c
		}
		attempt = c
	}
	return total, attempt
}

// Hours is a time of these tests by the market's clock, in hours.
func (s *Server) Hours(d time.Duration) float64 { return d.Hours() * s.opt.Scale }
