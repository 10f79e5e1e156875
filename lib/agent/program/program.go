// Package program is the program that runs tasks in the jobs of Slurm, ponos-worker, and that of pilot jobs, jobpool: where
// the tools have them for each kind of machine, where the nodes find it, and how the script of a job waits for it.
//
//	Waiting ──its directory and the program are there──► it becomes the program
//	   └──SIGTERM, or 10 minutes──► it exits with 143: the task has not begun
//
// # Files
//
//	libexec/ponos/MACHINE/ponos-worker, jobpool for machines that are not of the kind of the agent's, which runs itself;
//	                                            beside the directory of the tools, or in its libexec
//	DATA/bin/DIGEST/MACHINE/ponos-worker        what jobs run
//	DATA/bin/DIGEST/MACHINE/jobpool             what pilot jobs run
//	DATA/bin/lock                               held while programs are placed or removed
//
// MACHINE is that of "uname -m", and i686 also runs on x86_64, where a limit of the address space (ulimit -v) keeps 64-bit
// programs from starting. DIGEST is of the programs of all machines: jobs of different versions find each their own.
package program

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/base/shell"
)

const (
	file = "ponos-worker"
	pool = "jobpool"
)

// Programs are the paths of the programs for one kind of machine, by their names.
type Programs map[string]string

// find is the part of a script that is the same for all jobs. It is a file of its own, so that linters of shell
// scripts can check it.
//
//go:embed find.sh
var find string

// Text returns the rest of the script of a job, for bash, which becomes the program with the arguments that the script has
// by then. Bin is a result of Place. It waits for the directory that the variable ponos_dir names. Other shells drop
// variables that they could not name, such as those of exported functions.
func Text(bin string) string { return become(file, bin) }

func become(program, bin string) string {
	return "ponos_file=" + program + " ponos_bin=" + shell.Quote(bin) + "\n" + find
}

// Pilot returns the program of pilot jobs as a script, which becomes jobpool. Bin is a result of Place, dir one that the script waits
// for. It is an error that no machine has jobpool.
func Pilot(bin, dir string) ([]byte, error) {
	if placed, err := filepath.Glob(filepath.Join(bin, "*", pool)); err != nil || len(placed) == 0 {
		_, missing := command.Sibling(pool)
		return nil, fault.Wrap(fault.Usage, cmp.Or(err, missing, fs.ErrNotExist))
	}
	return []byte("#!/bin/bash\n# jobpool for pilot jobs, made by ponos-start.\n" +
		"ponos_dir=" + shell.Quote(dir) + "\n" + become(pool, bin)), nil
}

// Store has the programs of the jobs of an agent.
type Store struct {
	Dir string // DATA/bin
	// Installed returns where the program of each machine is; see Installed.
	Installed func() (map[string]Programs, error)
	// Named returns the digests of programs that jobs name which are of no task; nil: there are none.
	Named func() ([]string, error)

	mu     sync.Mutex
	placed string    // the directory of what is installed, once that is in Dir
	at     time.Time // when it was seen to be there
}

// Installed returns where the programs are that belong to this one, by the machines that run them. That of this machine is
// the program of all tools.
func Installed() (paths map[string]Programs, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	worker, err := command.Sibling(file)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err) // nothing but another installation helps
	}
	own := Programs{file: worker[0]}
	if with, err := command.Sibling(pool); err == nil { // without it, no pilot runs there
		own[pool] = with[0]
	}
	paths = map[string]Programs{unix.ByteSliceToString(u.Machine[:]): own}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	beside := filepath.Dir(self)
	for _, dir := range []string{filepath.Join(filepath.Dir(beside), "libexec", "ponos"), filepath.Join(beside, "libexec")} {
		all, err := filepath.Glob(filepath.Join(dir, "*", file))
		if err != nil {
			return nil, err
		}
		for _, path := range all {
			other := Programs{file: path}
			if with := filepath.Join(filepath.Dir(path), pool); exists(with) {
				other[pool] = with
			}
			paths[filepath.Base(filepath.Dir(path))] = other
		}
	}
	return paths, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Place puts what is installed where nodes find it, and returns the directory of that. What was placed is not removed
// for a day.
func (s *Store) Place() (bin string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, missing := os.Stat(s.placed)                                            // somebody may have removed it
	if now := clock.Now(); missing != nil || now.Sub(s.at).Abs() > time.Hour { // an upgrade may have come since
		if s.placed, err = s.place(); err == nil {
			s.at = now
		}
	}
	return s.placed, err
}

func (s *Store) place() (bin string, err error) {
	paths, err := s.Installed()
	if err != nil {
		return "", err
	}
	texts := map[string][]byte{} // by MACHINE/FILE
	for machine, programs := range paths {
		for name, path := range programs {
			if texts[filepath.Join(machine, name)], err = os.ReadFile(path); err != nil {
				return "", err
			}
		}
	}
	names := slices.Sorted(maps.Keys(texts))
	digest := sha256.New()
	for _, name := range names {
		fmt.Fprintf(digest, "%s %d\n", name, len(texts[name]))
		digest.Write(texts[name])
	}
	bin = filepath.Join(s.Dir, hex.EncodeToString(digest.Sum(nil))[:16])
	release, err := s.hold()
	if err != nil {
		return "", err
	}
	defer release()
	for _, name := range names {
		if err := put(filepath.Join(bin, name), texts[name]); err != nil {
			return "", fmt.Errorf("the program that jobs run: %w", err)
		}
	}
	return bin, clock.Touch(bin)
}

// hold keeps other processes from removing what is placed, until it is released. Where the file system has no locks, what
// was placed is too new to be removed.
func (s *Store) hold() (release func(), err error) {
	if err := os.Mkdir(s.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, lock.ErrHeld)
	defer cancel()
	held, err := lock.Wait(ctx, filepath.Join(s.Dir, "lock"))
	switch {
	case lock.Missing(err):
		return func() {}, nil
	case err != nil:
		return nil, err
	}
	return func() { _ = held.Close() }, nil
}

// put makes a whole program, or none.
func put(path string, text []byte) error {
	dir := filepath.Dir(path)
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(text)) {
		return nil
	}
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return renameio.WriteFile(path, text, 0o700, renameio.WithTempDir(dir))
}

// Prune removes programs that were not placed since a time and whose digests nothing names. What jobs name is asked for if there
// are such programs; where it is not known, all stay.
func (s *Store) Prune(before time.Time, jobs func() (named []string, known bool, err error)) error {
	if old, err := s.unused(before); len(old) == 0 {
		return err
	}
	release, err := s.hold()
	if err != nil {
		return err
	}
	defer release()
	named, known, err := jobs()
	if err != nil || !known {
		return err
	}
	if s.Named != nil {
		more, err := s.Named()
		if err != nil {
			return err
		}
		named = append(named, more...)
	}
	old, err := s.unused(before)
	errs := []error{err}
	for _, digest := range old {
		if !slices.Contains(named, digest) {
			errs = append(errs, remove.All(filepath.Join(s.Dir, digest)))
		}
	}
	return errors.Join(errs...)
}

// unused returns the digests of programs that were not placed since a time.
func (s *Store) unused(before time.Time) (digests []string, err error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && clock.Modified(info).Before(before) && isDigest(e.Name()) {
			digests = append(digests, e.Name())
		}
	}
	return digests, err
}

func isDigest(name string) bool {
	return len(name) == 16 && strings.Trim(name, "0123456789abcdef") == ""
}
