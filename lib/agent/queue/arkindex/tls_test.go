package arkindex_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/queue/arkindex"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

// A server whose certificate nobody vouches for gets neither the seed nor a token.
func TestUntrustedCertificate(t *testing.T) {
	var asked atomic.Int32
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	web.StartTLS()
	defer web.Close()
	b := setup(t, server.Options{}, func(c *arkindex.Config) { c.URL = web.URL })
	_, err := b.q.Register(t.Context())
	b.refusal(err, "certificate")
	if asked.Load() > 0 {
		t.Errorf("the server got %d requests", asked.Load())
	}
}
