// Package archive unpacks the tar.zst archives that models and data sets come in.
//
// Archives come from outside: nothing in one can be written outside the directory
// that it is unpacked into, whatever its names and links say, and what is neither
// file nor directory nor link is refused.
package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/ponos-tools/ponos/lib/task"
)

// Bounds of an archive, and of the memory that it may ask for.
const (
	maxEntries = 1 << 20
	maxWindow  = 512 << 20 // bytes; zstd --long=29 and below
)

var magic = []byte{0x28, 0xb5, 0x2f, 0xfd} // every zstd file begins so

// Unpack unpacks a tar.zst archive into a directory that exists, and reports
// whether the file is one. A file of another kind is left alone.
func Unpack(file, dir string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(f, head); err != nil || !bytes.Equal(head, magic) {
		return false, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return false, err
	}
	defer z.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	is, err := unpack(tar.NewReader(z), root)
	if err != nil {
		return is, fmt.Errorf("unpacking %q: %w", filepath.Base(file), err)
	}
	return is, nil
}

func unpack(t *tar.Reader, root *os.Root) (bool, error) {
	for n := 0; ; n++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return n > 0, nil
		case errors.Is(err, tar.ErrHeader) && n == 0:
			return false, nil // compressed, but no archive
		case err != nil:
			return true, err
		case n == maxEntries:
			return true, fmt.Errorf("more than %d entries", maxEntries)
		}
		if err := entry(h, t, root); err != nil {
			return true, fmt.Errorf("%q: %w", task.Clean(h.Name), err)
		}
	}
}

func entry(h *tar.Header, contents io.Reader, root *os.Root) error {
	name := path.Clean(h.Name)
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) {
		return errors.New("leads out of the directory")
	}
	if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o777)
	case tar.TypeReg:
		return write(name, h.FileInfo().Mode(), contents, root)
	case tar.TypeSymlink:
		// A link that leads out is no danger to us, as root does not follow it, but it
		// would be to those who read the directory.
		if path.IsAbs(h.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), h.Linkname)) || throughLink(path.Dir(name), root) {
			return errors.New("link leads out of the directory")
		}
		return again(root, name, func() error { return root.Symlink(h.Linkname, name) })
	case tar.TypeLink:
		if !filepath.IsLocal(path.Clean(h.Linkname)) {
			return errors.New("link leads out of the directory")
		}
		return again(root, name, func() error { return root.Link(path.Clean(h.Linkname), name) })
	case tar.TypeXGlobalHeader:
		return nil
	}
	return fmt.Errorf("entry of type %q", h.Typeflag)
}

// throughLink reports whether a directory is reached by way of a link. Where
// "..", seen from it, leads to cannot be told from its name.
func throughLink(dir string, root *os.Root) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
			return true
		}
	}
	return false
}

// write makes one file, in place of what an earlier attempt has left.
func write(name string, mode fs.FileMode, contents io.Reader, root *os.Root) error {
	var f *os.File
	err := again(root, name, func() (err error) {
		f, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666|mode&0o111)
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(f, contents)
	return errors.Join(err, f.Close())
}

// again removes what is in the way of f.
func again(root *os.Root, name string, f func() error) error {
	err := f()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := root.Remove(name); err != nil {
		return err
	}
	return f()
}
