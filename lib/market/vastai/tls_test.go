package vastai

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The key is not sent to a server whose certificate is not trusted.
func TestUntrustedCertificate(t *testing.T) {
	var asked atomic.Int32
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	web.StartTLS()
	defer web.Close()
	r := NewREST(web.URL, "the-key")
	r.Wait, r.Tries = time.Millisecond, 1
	_, err := r.once(t.Context(), "asking", http.MethodGet, "/api/v0/users/current/", nil)
	if err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "the-key") {
		t.Errorf("error %v, want one about the certificate", err)
	}
	if asked.Load() > 0 {
		t.Errorf("the market got %d requests", asked.Load())
	}
}
