package rented

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/web"
	"github.com/ponos-tools/ponos/lib/market/entry"
)

// serveTime is the longest wait for the program, and maxProgram its greatest size.
const (
	serveTime  = 2 * time.Minute
	maxProgram = 64 << 20
)

// served fetches vast-entry for each architecture as a container would, and says which ones there are. It is an error if there
// is none that containers would run.
func (r *Runner) served(ctx context.Context) (string, error) {
	if r.Program.URL == "" {
		return "", fault.Wrap(fault.Usage, errNoEntry)
	}
	var good []string
	var bad error
	for _, arch := range entry.Architectures {
		address := r.Program.URL + "-" + arch
		fetch := r.Fetch
		if fetch == nil {
			fetch = fetched
		}
		sum, err := fetch(ctx, address)
		switch {
		case err != nil:
			bad = fault.Errorf(fault.Unavailable, "vast_api.entry_url: %s: %w", address, err)
		case !slices.Contains(strings.Fields(r.Program.Sums), sum):
			bad = fault.Errorf(fault.Usage, "vast_api.entry_sha256: %s has the SHA-256 %s, and containers would not run it", address, sum)
		default:
			good = append(good, arch)
		}
	}
	if len(good) == 0 {
		return "", bad
	}
	return "containers fetch vast-entry for " + strings.Join(good, " and ") + " with curl, wget or python3; " +
		"without it, they destroy their instance with curl, GNU wget or python3, or else the agent does", nil
}

// stillServed looks once an hour whether containers can fetch the program, before anything is rented.
func (r *Runner) stillServed(ctx context.Context) error {
	if r.Program.URL == "" {
		return later("%w", errNoEntry)
	}
	path := filepath.Join(r.Dir, "served.json")
	var last struct {
		At      time.Time
		Program Program
	}
	b, err := os.ReadFile(path)
	if err == nil && json.Unmarshal(b, &last) == nil && last.Program == r.Program && r.now().Sub(last.At).Abs() < time.Hour {
		return nil
	}
	if _, err := r.served(ctx); err != nil {
		return later("%w", err)
	}
	last.At, last.Program = r.now(), r.Program
	if b, err = json.Marshal(last); err != nil {
		return err
	}
	return renameio.WriteFile(path, b, 0o600, renameio.WithTempDir(r.Dir))
}

// fetched returns the SHA-256 of what is at an address.
func fetched(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, serveTime)
	defer cancel()
	q, err := http.NewRequestWithContext(web.Leaves(ctx), http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	answer, err := web.New(nil).Do(q)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", answer.StatusCode)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(answer.Body, maxProgram)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
