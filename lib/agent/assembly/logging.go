package assembly

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/getsentry/sentry-go"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// logging is the agent's own log.
type logging struct {
	*slog.Logger
	file   io.Closer
	sentry bool
}

var levels = map[string]slog.Level{
	"NOTSET": slog.LevelDebug, "DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARNING": slog.LevelWarn,
	"ERROR": slog.LevelError, "CRITICAL": slog.LevelError + 4,
}

// openLogging opens the log: the file of the configuration, standard error with
// --verbose, nothing otherwise.
func openLogging(c config.Config, o Options) (*logging, error) {
	l := &logging{}
	var writers []io.Writer
	if o.Verbose {
		writers = append(writers, o.Stderr)
	}
	if c.Logging.Path != "" {
		if err := os.MkdirAll(filepath.Dir(c.Logging.Path), 0o700); err != nil {
			return nil, fault.Errorf(fault.Usage, "logging.path: %w", err)
		}
		f, err := os.OpenFile(c.Logging.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, fault.Errorf(fault.Usage, "logging.path: %w", err)
		}
		writers, l.file = append(writers, f), f
	}
	l.Logger = slog.New(slog.DiscardHandler)
	if len(writers) > 0 {
		l.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(writers...), &slog.HandlerOptions{Level: levels[c.Logging.Level]}))
	}
	l.Logger = l.With("tool", o.Tool)
	if c.Sentry.DSN != "" {
		err := sentry.Init(sentry.ClientOptions{
			Dsn: c.Sentry.DSN, Environment: c.Sentry.Environment, Release: "ponos@" + app.Version, ServerName: hostname(),
		})
		if err != nil {
			return nil, errors.Join(fault.Errorf(fault.Usage, "sentry.dsn: it cannot be used"), l.end())
		}
		l.sentry = true
		sentry.ConfigureScope(func(s *sentry.Scope) { s.SetTag("tool", o.Tool) })
	}
	return l, nil
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// flush limits how long a tool waits for Sentry before it exits.
const flush = 3 * time.Second

// close reports an error, unless it only means that a signal ended the tool, or only sets its exit
// status.
func (l *logging) close(err error) {
	var interrupted app.Interrupted
	if _, silent := fault.Code(err); !silent && !errors.Is(err, context.Canceled) && !errors.As(err, &interrupted) {
		l.Error(err.Error())
		if l.sentry {
			sentry.CaptureException(err)
		}
	}
	if l.sentry {
		sentry.Flush(flush)
	}
	_ = l.end() // there is no other place to report it
}

func (l *logging) end() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// Problem logs a failure that does not end the tool.
func (p *System) Problem(err error) {
	p.log.Error(err.Error())
	if p.log.sentry {
		sentry.CaptureException(err)
	}
}
