package arkindex

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/web"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// DefaultLogContentType is the content type for which most instances sign the log URLs.
const DefaultLogContentType = "text/plain; charset=utf-8"

// Config configures the connection to an instance.
type Config struct {
	URL    string // root of the instance, with or without /api/v1/
	FarmID string
	Seed   string // a credential

	AuthScheme   string // scheme of the agent's token; "": Bearer
	IdentityFile string // the agent's id and tokens, mode 0600; its directory must exist
	// Memory keeps the agent's id for when the identity file is lost: the instance gives the agent
	// its tasks only under that id.
	Memory         place.Memory
	Mode           string // slurm, vast, local
	Hostname       string // "": that of this machine
	LogContentType string // Content-Type of a log; "": none is sent

	Hardware *Hardware // what is declared at registration; nil: this machine
	// DeclareGPU declares a GPU even if the hardware has none, so that the instance assigns tasks
	// that need one: they will run elsewhere.
	DeclareGPU bool
	Load       func() (cpu, ram float64)                  // how busy the agent is, 0 to 1; nil: this machine
	HTTP       *http.Client                               // nil: one with suitable limits
	Logger     *slog.Logger                               // nil: nothing is logged
	Now        func() time.Time                           // nil: that of lib/base/clock
	Waits      []time.Duration                            // before each repetition of a failed request; nil: about 15 s in total
	Stall      time.Duration                              // how long a transfer may stall; 0: 2 minutes
	Sleep      func(context.Context, time.Duration) error // nil: really sleep
}

// Queue implements queue.Queue. It may be used by several goroutines.
type Queue struct {
	cfg  Config
	base *url.URL
	api  *http.Client // follows no redirect that would change a request
	log  *slog.Logger
	away sync.Map // host: when a request to it timed out

	mu       sync.Mutex // guards the fields below
	identity identity
	schema   *schema

	tasksMu sync.Mutex
	tasks   map[task.ID]known  // what is kept of definitions
	owners  map[string]task.ID // which task a file's URL was given to
	kept    []task.Action      // what the file of particulars holds, once it was read
	read    bool
	readers map[task.ID]credential // a child's credential, to read its parent's artifacts
}

var _ queue.Queue = (*Queue)(nil)

// New checks the configuration. Nothing is read or sent yet.
func New(cfg Config) (*Queue, error) {
	base, err := url.Parse(cfg.URL)
	switch {
	case err != nil, base.Host == "", base.Scheme != "http" && base.Scheme != "https":
		return nil, fault.Errorf(fault.Usage, "url of Arkindex is not an http or https URL")
	case !web.Private(base):
		return nil, fault.Hint(fault.Errorf(fault.Usage, "url of Arkindex: http would send the seed unencrypted"), "use https")
	case base.User != nil:
		return nil, fault.Errorf(fault.Usage, "url of Arkindex: unexpected user name")
	case cfg.FarmID == "":
		return nil, fault.Errorf(fault.Usage, "farm_id is missing")
	case cfg.Seed == "":
		return nil, fault.Errorf(fault.Usage, "seed is missing")
	case cfg.IdentityFile == "":
		return nil, fault.Errorf(fault.Usage, "no file for the agent's identity")
	}
	if cfg.AuthScheme == "" {
		cfg.AuthScheme = "Bearer"
	}
	if cfg.Hostname == "" {
		if cfg.Hostname, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("name of this machine: %w", err)
		}
	}
	if cfg.Load == nil {
		cfg.Load = machineLoad
	}
	if cfg.HTTP == nil {
		cfg.HTTP = newHTTPClient()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = clock.Now
	}
	if cfg.Waits == nil {
		cfg.Waits = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}
	}
	if cfg.Stall == 0 {
		cfg.Stall = 2 * time.Minute
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	return &Queue{
		cfg: cfg, base: base, api: web.Guard(cfg.HTTP), log: cfg.Logger,
		tasks: map[task.ID]known{}, owners: map[string]task.ID{}, readers: map[task.ID]credential{},
	}, nil
}

// sleep waits for about d, with jitter so that agents do not synchronize.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(time.Duration(float64(d) * (0.75 + 0.5*rand.Float64())))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// newHTTPClient limits every wait of a connection, but not the total time of a large transfer:
// stalled does that.
func newHTTPClient() *http.Client {
	return web.New(func(t *http.Transport) {
		t.ResponseHeaderTimeout = time.Minute
		t.MaxIdleConnsPerHost = 16
	})
}
