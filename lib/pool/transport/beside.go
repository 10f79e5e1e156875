package transport

import (
	"errors"
	"io"
	"os"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Step is a command at a node of another job of the user, with its streams.
type Step struct {
	job string
	l   *link
	log *os.File
}

// Beside runs a command of sh as a step of a job, beside all that runs there.
func Beside(job, host, script string) (*Step, error) {
	log, err := os.CreateTemp("", "jobpool-srun-")
	if err != nil {
		return nil, err
	}
	l, err := start(command.Cmd{Name: "srun", Args: ToJob(nil, job, host, script), Env: OtherJob(os.Environ())}, log)
	if err != nil {
		return nil, errors.Join(err, log.Close(), os.Remove(log.Name()))
	}
	return &Step{job, l, log}, nil
}

// Read reads what the command prints. Where the step has failed, the error says why.
func (s *Step) Read(b []byte) (int, error) {
	n, err := s.l.Read(b)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if e := s.l.Close(); e != nil {
		return n, fault.Errorf(fault.Unavailable, "no scheduler answers in job %s: %w", s.job, e)
	}
	return n, err
}

func (s *Step) Write(b []byte) (int, error) { return s.l.Write(b) }

// CloseWrite ends the input of the command.
func (s *Step) CloseWrite() error { return s.l.p.Stdin.Close() }

// Close ends the step.
func (s *Step) Close() error {
	s.l.Abort()
	return errors.Join(s.log.Close(), os.Remove(s.log.Name()))
}
