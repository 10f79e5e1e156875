package rented

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// pod is a machine of another market: it has a name only, and neither a log nor a label that can change.
type pod struct {
	id      int64
	kind    string
	env     map[string]string
	status  string // starting, up, or gone
	started time.Time
}

// pods is a market without offers, logs and labels: machines are rented by their kind, and what is paid is a sum for each
// of them. It lags, and loses answers.
type pods struct {
	clock  *fakeClock
	kinds  map[string]float64 // dollars an hour
	credit float64
	rented []*pod
	next   int64
	offers map[int64]string // kinds by the ids that a search has given them
	lost   int              // answers to orders that are lost
	empty  int              // lists that are empty, although there are pods
	most   int              // pods at once
}

// mailbox is where entrypoints put their output and their end: a store that the agent and its machines can reach. Names
// are nonces, which only these two know.
type mailbox struct {
	output map[string]string
	ends   map[string]string
}

// second is that market as the runner wants it: what it has not got comes from variables and from the mailbox. This is
// all that another market takes.
type second struct {
	*pods
	mail mailbox
	pace func(ctx context.Context, op string) error
}

func (s *second) SetPace(pace func(ctx context.Context, op string) error) { s.pace = pace }

func (s *second) Name() string { return "pods" }

func (s *second) Account(context.Context) (vastai.Account, error) {
	return vastai.Account{ID: 1, Credit: s.credit}, nil
}

// Search makes an offer of each kind, another one each time: it can be taken again.
func (s *second) Search(_ context.Context, search vastai.Search) (vastai.Found, error) {
	found := vastai.Found{Offers: []vastai.Offer{}}
	for kind, price := range s.kinds {
		id := int64(len(s.offers) + 1)
		s.offers[id] = kind
		row, err := json.Marshal(map[string]any{
			"id": id, "gpu_name": kind, "num_gpus": 1.0, "gpu_ram": 24000.0, "dph_total": price, "disk_space": 500.0, "verification": "verified",
		})
		if err != nil {
			return found, err
		}
		var o vastai.Offer
		if err := o.UnmarshalJSON(row); err != nil {
			return found, err
		}
		if !search.Bid {
			found.Offers = append(found.Offers, o)
		}
	}
	return found, nil
}

func (s *second) Create(_ context.Context, offer int64, o vastai.Order) (vastai.Created, error) {
	kind, known := s.offers[offer]
	if !known {
		return vastai.Created{}, vastai.ErrOfferGone
	}
	s.next++
	s.rented = append(s.rented, &pod{id: s.next, kind: kind, env: o.Env, status: "starting", started: s.clock.Now()})
	s.most = max(s.most, len(s.rented))
	if s.lost > 0 {
		s.lost--
		return vastai.Created{}, vastai.ErrUnknown
	}
	return vastai.Created{ID: s.next}, nil
}

// instance is a pod as an instance. Its label is that of its variables, and the end that its entrypoint has told.
func (s *second) instance(p *pod) vastai.Instance {
	job, _ := entry.Unpack(func(name string) string { return p.env[name] })
	i := vastai.Instance{
		ID: p.id, Label: job.Label, Actual: map[string]string{"starting": "loading", "up": "running"}[p.status], Price: s.kinds[p.kind],
		Started: p.started, Variables: p.env, Facts: map[string]any{},
	}
	if end, told := s.mail.ends[p.env[entry.NonceEnv]]; told {
		i.Label += entry.EndMark + end
	}
	return i
}

func (s *second) List(_ context.Context, label string) (vastai.Listing, error) {
	l := vastai.Listing{Instances: []vastai.Instance{}}
	if s.empty > 0 {
		s.empty--
		return l, nil
	}
	for _, p := range s.rented {
		if i := s.instance(p); label == "" || i.Label == label {
			l.Instances = append(l.Instances, i)
		}
	}
	return l, nil
}

func (s *second) Show(_ context.Context, id int64) (*vastai.Instance, error) {
	for _, p := range s.rented {
		if p.id == id {
			i := s.instance(p)
			return &i, nil
		}
	}
	return nil, nil
}

func (s *second) Destroy(_ context.Context, ids ...int64) error {
	for _, id := range ids {
		for k, p := range s.rented {
			if p.id == id {
				s.rented = append(s.rented[:k:k], s.rented[k+1:]...)
				break
			}
		}
	}
	return nil
}

// Log is what the entrypoint has put into the mailbox, and its end.
func (s *second) Log(_ context.Context, id int64, _ int) ([]byte, error) {
	i, err := s.Show(context.Background(), id)
	if err != nil || i == nil {
		return nil, vastai.ErrNotReady
	}
	nonce := i.Env(entry.NonceEnv)
	text := s.mail.output[nonce]
	if end, told := s.mail.ends[nonce]; told {
		text += fmt.Sprintf("\n%s %s %s\n", entry.Marker, nonce, end)
	}
	return []byte(text), nil
}

func (s *second) Charges(context.Context, time.Time, time.Time, string) ([]vastai.Charge, string, error) {
	return nil, "", nil
}

// newSecond is a stand on the second market.
func newSecond(t *testing.T) (*stand, *second) {
	t.Helper()
	s := newStand(t, 0)
	m := &second{
		pods: &pods{clock: s.clock, kinds: map[string]float64{"pod": 0.5}, offers: map[int64]string{}, credit: 50},
		mail: mailbox{map[string]string{}, map[string]string{}},
	}
	sleep := s.API.Sleep
	s.API = vastai.NewGovernor(m, s.API.Dir+"-second", s.API.Unit, s.clock.Now)
	s.API.Keep, s.API.Sleep = Kept(), sleep
	return s, m
}

// start starts a task of the second market.
func (s *stand) start(m *second, n int) *pod {
	s.Helper()
	job, err := s.Start(s.Context(), s.submission(n))
	if err != nil {
		s.Fatal(err)
	}
	s.track(n, job.ID)
	return m.rented[len(m.rented)-1]
}

// A task on a market without logs and labels: it runs, its output and its end arrive, and nothing is left.
func TestSecondMarket(t *testing.T) {
	s, m := newSecond(t)
	p := s.start(m, 1)
	if j := s.turn()[s.job(1)]; j.Shows() != task.Pending || j.Reason != "the machine loads the image" {
		t.Errorf("%+v", j)
	}
	p.status = "up"
	nonce := p.env[entry.NonceEnv]
	m.mail.output[nonce] = "@0 one\n"
	if j := s.turn()[s.job(1)]; j.Shows() != task.Running {
		t.Errorf("%+v", j)
	}
	m.mail.output[nonce] += "@4 two\n"
	m.mail.ends[nonce] = "3"
	if j := s.turn()[s.job(1)]; j.Shows() != task.Failed || j.ExitCode != 3 {
		t.Errorf("%+v", j)
	}
	if out := s.output(1); out != "one\ntwo\n" {
		t.Errorf("%q", out)
	}
	for range 4 {
		s.turn()
	}
	if names, err := s.orders(); err != nil || len(names) > 0 || len(m.rented) > 0 {
		t.Errorf("%v %v %+v", names, err, m.rented)
	}
}

// What holds on the first market holds there: an answer that is lost, lists that are empty for long, a machine that is
// gone, one that is too slow.
func TestSecondMarketFails(t *testing.T) {
	s, m := newSecond(t)
	s.Retries = 1
	m.lost = 1
	if _, err := s.Start(t.Context(), s.submission(1)); err == nil || !strings.Contains(err.Error(), "the answer to an order was lost") {
		t.Fatal(err)
	}
	s.clock.pass(time.Minute)
	p := s.start(m, 1) // found by its variables
	if len(m.rented) != 1 {
		t.Fatalf("%+v", m.rented)
	}
	p.status = "up"
	s.turn()
	for m.empty = 20; m.empty > 0; {
		if j := s.turn()[s.job(1)]; j.Shows() != task.Running {
			t.Fatalf("%+v", j)
		}
	}
	s.turn()
	if err := m.Destroy(t.Context(), p.id); err != nil { // its host is lost
		t.Fatal(err)
	}
	for range 5 {
		s.turn()
	}
	if len(m.rented) != 1 || m.rented[0] == p || m.most != 1 || len(s.events("lost")) != 1 {
		t.Fatalf("%+v\n%s", m.rented, s.said)
	}
	s.clock.pass(s.Limits.Boot)
	for range 3 {
		s.turn()
	}
	if len(m.rented) != 1 || m.next != 3 || m.most != 1 || len(s.events("fault")) != 1 {
		t.Errorf("%+v\n%s", m.rented, s.said)
	}
	if err := s.API.Destroy(t.Context(), m.rented[0].id); err != nil {
		t.Error(err)
	}
}
