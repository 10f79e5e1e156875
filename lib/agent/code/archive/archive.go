package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/task"
)

// Limits of an archive, and of the memory that it may ask for.
const (
	maxEntries = 1 << 20
	maxWindow  = 512 << 20 // bytes; zstd --long=29 and below
	maxTrailer = 1 << 20   // bytes of padding behind the last entry
	// Real data is not compressed to less than a thousandth.
	maxSmall = 4 << 30
	maxRatio = 1000
)

var magic = []byte{0x28, 0xb5, 0x2f, 0xfd} // the first bytes of every zstd file

// BadError is an archive that can never be unpacked.
type BadError struct{ err error }

func (e *BadError) Error() string { return e.err.Error() }
func (e *BadError) Unwrap() error { return e.err }

// bad marks an error as that of the archive, unless it is one of this machine.
func bad(err error) error {
	if err == nil || machines(err) {
		return err
	}
	return &BadError{err}
}

// machines reports whether an error may pass with the same archive.
func machines(err error) bool {
	for _, e := range []error{
		unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ESTALE, unix.EMFILE, unix.ENFILE, unix.ENOMEM,
		unix.EACCES, unix.EPERM, unix.EINTR, unix.ETIMEDOUT,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Zstd unpacks a .tar.zst archive into an existing directory, and reports whether the file is one. A
// file of another kind is left alone. No link may lead out of the directory.
func Zstd(file, dir string) (bool, error) {
	f, size, err := open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	start := make([]byte, len(magic))
	if _, err := f.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if !bytes.Equal(start, magic) {
		return false, nil
	}
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return false, err
	}
	defer z.Close()
	n, err := unpack(z, dir, unpacking{file: file, left: maxSmall + maxRatio*size, most: maxEntries})
	if errors.Is(err, tar.ErrHeader) && n == 0 {
		return false, nil // compressed, but not an archive
	}
	return n > 0 || err != nil, err
}

// Gzip unpacks a .tar.gz archive into an existing directory. Its creator is allowed to run its
// contents, so links may lead anywhere; they are not followed.
func Gzip(file, dir string) error {
	f, _, err := open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return bad(fmt.Errorf("unpacking %q: %w", filepath.Base(file), err))
	}
	_, err = unpack(z, dir, unpacking{file: file, left: maxSmall, most: maxEntries, anyLink: true})
	return err
}

func open(file string) (*os.File, int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, min(info.Size(), 1<<50), nil
}

// unpacking is the state of unpacking one archive.
type unpacking struct {
	file    string
	left    int64 // bytes that it may still unpack to
	most    int   // entries
	anyLink bool  // links may lead out
	root    *os.Root
	links   []string // symbolic links that were made
}

// unpack unpacks a tar stream and returns how many entries it had.
func unpack(stream io.Reader, dir string, u unpacking) (n int, err error) {
	if u.root, err = os.OpenRoot(dir); err != nil {
		return 0, err
	}
	defer u.root.Close()
	n, err = u.entries(tar.NewReader(stream))
	err = errors.Join(err, u.checkLinks())
	if err == nil {
		// The checksum follows the end of the archive.
		_, err = io.Copy(io.Discard, io.LimitReader(stream, maxTrailer))
	}
	if err != nil {
		err = bad(fmt.Errorf("unpacking %q: %w", filepath.Base(u.file), err))
	}
	return n, err
}

func (u *unpacking) entries(t *tar.Reader) (int, error) {
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		case n == u.most:
			return n, fmt.Errorf("more than %d entries", u.most)
		}
		// Counted before writing: the holes of a sparse file are not in the archive.
		if u.left -= h.Size; h.Size < 0 || u.left < 0 {
			return n, fmt.Errorf("%q: the archive unpacks to too many bytes", task.Clean(h.Name))
		}
		if err := u.entry(h, t); err != nil {
			return n, fmt.Errorf("%q: %w", task.Clean(h.Name), err)
		}
	}
}

func (u *unpacking) entry(h *tar.Header, contents io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name := path.Clean(h.Name)
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) {
		return errors.New("leads out of the directory")
	}
	if !u.anyLink && u.throughLink(path.Dir(name)) {
		return errors.New("leads through a link")
	}
	if err := u.root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.root.MkdirAll(name, 0o777)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.write(name, h.FileInfo().Mode(), contents)
	case tar.TypeSymlink:
		// A link that leads out is harmless here, as root does not follow it, but not for the readers
		// of the directory.
		if !u.anyLink && (path.IsAbs(h.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), h.Linkname))) {
			return errLeadsOut
		}
		u.links = append(u.links, name)
		return u.again(name, func() error { return u.root.Symlink(h.Linkname, name) })
	case tar.TypeLink:
		to := path.Clean(h.Linkname)
		if !filepath.IsLocal(to) {
			return errLeadsOut
		}
		if to == name {
			return errors.New("link to itself")
		}
		// The link would mean another place here than there.
		if info, err := u.root.Lstat(to); !u.anyLink && err == nil && (!info.Mode().IsRegular() || u.throughLink(path.Dir(to))) {
			return errors.New("hard link to a link or directory")
		}
		return u.again(name, func() error { return u.root.Link(to, name) })
	}
	return fmt.Errorf("entry of type %q", h.Typeflag)
}

var errLeadsOut = errors.New("link leads out of the directory")

// throughLink reports whether a directory is reached through a link. Where ".." leads from there
// cannot be known from its name.
func (u *unpacking) throughLink(dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if info, err := u.root.Lstat(dir); err == nil && !info.IsDir() {
			return true
		}
	}
	return false
}

// checkLinks removes the links that lead out at the end, and is an error if there are any. By its name alone, a link may
// lead to a place inside: what is on its way can be a link itself, also a later one.
func (u *unpacking) checkLinks() error {
	if u.anyLink {
		return nil
	}
	var bad error
	for _, name := range u.links {
		info, err := u.root.Lstat(name)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue // a later entry took its place
		}
		// A root refuses what leads out of it.
		if _, err := u.root.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			bad = fmt.Errorf("%q: %w", task.Clean(name), errLeadsOut)
			if err := u.root.Remove(name); err != nil {
				return err
			}
		}
	}
	return bad
}

// write creates one file, and replaces what an earlier attempt or entry has left.
func (u *unpacking) write(name string, mode fs.FileMode, contents io.Reader) error {
	var f *os.File
	err := u.again(name, func() (err error) {
		f, err = u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666|mode&0o111)
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(f, contents)
	return errors.Join(err, f.Close())
}

// again removes what prevents f, and calls it again.
func (u *unpacking) again(name string, f func() error) error {
	err := f()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := u.root.Remove(name); err != nil {
		return err
	}
	return f()
}
