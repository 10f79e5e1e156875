package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// PutLog updates the published log. Logs grow at their end: new output is appended, and a log is
// replaced only if it has changed otherwise.
func (q *Queue) PutLog(_ context.Context, id task.ID, log io.ReadSeeker) error {
	if err := q.mine(id); err != nil {
		return err
	}
	done, err := extend(q.Log(id), log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	if done {
		return nil
	}
	return q.copyTo(q.Log(id), log)
}

// sameEnd is how many bytes at the end of a published log are compared with the log to decide whether
// it is its beginning.
const sameEnd = 4096

// extend appends to a published log what it does not have yet. It reports false if the published log
// is not the beginning of the log. Two concurrent calls write the same bytes to the same places.
func extend(path string, log io.ReadSeeker) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	total, err := log.Seek(0, io.SeekEnd)
	if err != nil || total < info.Size() || !info.Mode().IsRegular() {
		return false, err
	}
	published := make([]byte, min(sameEnd, info.Size()))
	at := info.Size() - int64(len(published))
	if _, err := f.ReadAt(published, at); err != nil {
		return false, err
	}
	if _, err := log.Seek(at, io.SeekStart); err != nil {
		return false, err
	}
	have := make([]byte, len(published))
	if _, err := io.ReadFull(log, have); err != nil {
		return false, err
	}
	if !bytes.Equal(have, published) {
		return false, nil
	}
	if _, err := f.Seek(info.Size(), io.SeekStart); err != nil {
		return false, err
	}
	// With a buffer: the special cases of io.Copy for *os.File gain nothing here.
	if _, err := io.Copy(struct{ io.Writer }{f}, log); err != nil {
		return false, err
	}
	return true, f.Close()
}

func (q *Queue) copyTo(path string, from io.ReadSeeker) error {
	_, err := from.Seek(0, io.SeekStart)
	if err != nil {
		return err
	}
	// The name of a temporary file of renameio is longer than that of the file, which may have the
	// longest that there is.
	f, err := os.CreateTemp(q.path(tmpDir, ""), "put-*")
	if err == nil {
		err = copyFile(f, from)
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}

// Artifacts lists the published artifacts of a task.
func (q *Queue) Artifacts(_ context.Context, id task.ID) ([]task.Artifact, error) {
	root := q.path(artifactsDir, string(id))
	var list []task.Artifact
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && path == root {
				return nil
			}
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		list = append(list, task.Artifact{Path: filepath.ToSlash(name), Size: info.Size()})
		return err
	})
	if err != nil {
		return nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return list, nil
}

// artifact returns the path of an artifact. Its name must not lead out of the directory.
func (q *Queue) artifact(id task.ID, name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("artifact %q: the name leads out of the task's directory", task.Clean(name))
	}
	return q.path(artifactsDir, filepath.Join(string(id), name)), nil
}

// GetArtifact copies an artifact into a file.
func (q *Queue) GetArtifact(_ context.Context, id task.ID, a task.Artifact, to *os.File) error {
	path, err := q.artifact(id, a.Path)
	if err != nil {
		return err
	}
	return copyFrom(path, to)
}

// PutArtifact publishes a file.
func (q *Queue) PutArtifact(_ context.Context, id task.ID, a task.Artifact, from io.ReadSeeker) error {
	path, err := q.artifact(id, a.Path)
	if err == nil {
		err = q.mine(id)
	}
	if err != nil {
		return err
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		err = fault.Errorf(fault.Unavailable, "spool: %w", err)
	} else {
		err = q.copyTo(path, from)
	}
	return unfit(err)
}

// unfit marks an error as lasting if the file system of the spool cannot have a file of this name or
// size: it is too long or has invalid characters, or it is that of a directory, or of a file in the
// place of one.
func unfit(err error) error {
	for _, cause := range []error{
		unix.ENAMETOOLONG, unix.EILSEQ, unix.EINVAL, unix.EISDIR, unix.ENOTDIR, unix.EEXIST, unix.ENOTEMPTY, unix.EFBIG,
	} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%w: %w", queue.ErrBroken, cause)
		}
	}
	return err
}

// GetFile copies one of the task's files.
func (q *Queue) GetFile(_ context.Context, f task.File, to *os.File) error {
	path, ok := strings.CutPrefix(f.URL, "file://")
	if !ok || !filepath.IsAbs(path) {
		return fmt.Errorf("%w: file %q: a spool has files of this machine only", queue.ErrBroken, f.Name)
	}
	err := copyFrom(path, to)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", queue.ErrBroken, err)
	}
	return err
}

func copyFrom(path string, to *os.File) error {
	from, err := os.Open(path)
	if err == nil {
		defer from.Close()
		err = copyFile(to, from)
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}
