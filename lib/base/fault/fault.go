// Package fault gives errors the few kinds that the tools turn into exit
// codes, and the hint that is printed below the message.
//
// Every package may use it; it imports nothing of ours. The kind of an error is
// the outermost one in its chain, so a caller that knows better can overrule.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// Kind says what an error means for the one who called the tool.
type Kind int

// The kinds, each with its exit code.
const (
	Failed      Kind = 1 // the answer is no, or part of the work failed
	Usage       Kind = 2 // a wrong flag, argument, input or configuration
	Unavailable Kind = 3 // Slurm, the queue or Vast.ai refused or cannot be reached
	Busy        Kind = 4 // another agent is running
)

// Partial is the kind of work of which some was done and some failed.
const Partial = Failed

type kindError struct {
	kind Kind
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

// Errorf is fmt.Errorf with a kind.
func Errorf(kind Kind, format string, args ...any) error {
	return &kindError{kind, fmt.Errorf(format, args...)}
}

// Wrap gives err a kind; nil stays nil.
func Wrap(kind Kind, err error) error {
	if err == nil {
		return nil
	}
	return &kindError{kind, err}
}

// KindOf returns the kind of err: the outermost one of its chain, else Failed.
func KindOf(err error) Kind {
	var e *kindError
	if errors.As(err, &e) {
		return e.kind
	}
	return Failed
}

// Is reports whether err is of that kind. A nil error is of none.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

type hintError struct {
	hint string
	err  error
}

func (e *hintError) Error() string { return e.err.Error() }
func (e *hintError) Unwrap() error { return e.err }

// Hint adds what the user can do about err; nil stays nil.
func Hint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hintError{hint, err}
}

// HintOf returns the outermost hint of err, or "".
func HintOf(err error) string {
	var e *hintError
	if errors.As(err, &e) {
		return e.hint
	}
	return ""
}

type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// Exit makes an error that ends the tool with exactly this status, such as that
// of a command it ran for the user. With a nil err nothing is printed.
func Exit(code int, err error) error { return &exitError{code, err} }

// Code returns the exit status for err, and whether there is anything to print.
func Code(err error) (code int, silent bool) {
	if err == nil {
		return 0, true
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code, e.err == nil
	}
	return int(KindOf(err)), false
}

// Storage reports whether an error is one of a file system that is full, read-only or away, which others
// may mend.
func Storage(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.ESTALE, syscall.EIO},
		func(e syscall.Errno) bool { return errors.Is(err, e) })
}
