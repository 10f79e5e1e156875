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
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// kinds are both kinds of archive.
var kinds = map[string]struct {
	compress func(io.Writer) io.WriteCloser
	unpack   func(file, dir string) (bool, error)
}{
	".tar.zst": {
		func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
		Zstd,
	},
	".tar.gz": {
		func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		func(file, dir string) (bool, error) { return true, Gzip(file, dir) },
	},
}

// pack makes an archive of headers; a file's contents is its link name.
func pack(t testing.TB, kind string, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := kinds[kind].compress(&b)
	w := tar.NewWriter(z)
	for _, h := range headers {
		contents := ""
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			contents, h.Linkname = h.Linkname, ""
			h.Size = int64(len(contents))
		}
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(contents)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil && headers[len(headers)-1].Size == 0 {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpacked unpacks into a directory within another, of which nothing but it may
// change.
func unpacked(t testing.TB, kind string, contents []byte) (dir string, is bool, err error) {
	t.Helper()
	around := t.TempDir()
	dir = filepath.Join(around, "into")
	file := filepath.Join(t.TempDir(), "a"+kind)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, contents, 0o644); err != nil {
		t.Fatal(err)
	}
	is, err = kinds[kind].unpack(file, dir)
	if list, _ := os.ReadDir(around); len(list) != 1 {
		t.Errorf("written outside: %v", list)
	}
	return dir, is, err
}

func reg(name, contents string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Linkname: contents}
}

func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
}

func TestUnpack(t *testing.T) {
	run := reg("bin/run", "x")
	run.Mode = 0o755
	for kind, k := range kinds {
		archive := pack(t, kind, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c"}},
			tar.Header{Name: "./", Typeflag: tar.TypeDir}, reg("./model.pth", "weights"), run,
			tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, reg("d/e/f", "deep"),
			link("d/l", "../model.pth"), link("new/l", "../model.pth"),
			tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "model.pth"},
			reg("twice", "first"), reg("twice", "second"))
		dir, is, err := unpacked(t, kind, archive)
		if !is || err != nil {
			t.Fatal(kind, is, err)
		}
		file := filepath.Join(t.TempDir(), "again")
		if err := os.WriteFile(file, archive, 0o644); err != nil {
			t.Fatal(err)
		}
		if is, err := k.unpack(file, dir); !is || err != nil {
			t.Errorf("%s: unpacked again: %v, %v", kind, is, err)
		}
		for name, want := range map[string]string{
			"model.pth": "weights", "bin/run": "x", "d/e/f": "deep", "d/l": "weights", "new/l": "weights", "h": "weights", "twice": "second",
		} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%s: %s: %q, %v; want %q", kind, name, got, err, want)
			}
		}
		if info, err := os.Stat(filepath.Join(dir, "bin/run")); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%s: program: %v, %v", kind, info, err)
		}
	}
}

func TestHostile(t *testing.T) {
	large := reg("bomb", "")
	large.Size = maxSmall + maxRatio*1000 + 1
	for want, headers := range map[string][]tar.Header{
		`"../x": leads out of the directory`:         {reg("../x", "x")},
		`"/x": leads out of the directory`:           {reg("/x", "x")},
		`"a/../../x": leads out of the directory`:    {reg("a/../../x", "x")},
		`"hard": link leads out of the directory`:    {{Name: "hard", Typeflag: tar.TypeLink, Linkname: "../into/../x"}},
		`"self": link to itself`:                     {{Name: "self", Typeflag: tar.TypeLink, Linkname: "./self"}},
		`"pipe": entry of type '6'`:                  {{Name: "pipe", Typeflag: tar.TypeFifo}},
		`"null": entry of type '3'`:                  {{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		`"bomb": the archive unpacks to too many by`: {large},
	} {
		for kind := range kinds {
			_, is, err := unpacked(t, kind, pack(t, kind, headers...))
			var bad *BadError
			if !is || !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, %v; want %s", kind, is, err, want)
			}
		}
	}
}

// Links out of the directory are refused in what was downloaded, and never followed.
// again is a stream that has the same bytes again and again.
type again struct {
	bytes []byte
	at    int
}

func (r *again) Read(b []byte) (int, error) {
	n := copy(b, r.bytes[r.at:])
	r.at = (r.at + n) % len(r.bytes)
	return n, nil
}

// An archive of entries without end is not unpacked without end.
func TestEntriesWithoutEnd(t *testing.T) {
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	n, err := unpack(&again{bytes: b.Bytes()}, t.TempDir(), unpacking{left: maxSmall, most: 1000})
	var bad *BadError
	if n != 1000 || !errors.As(err, &bad) || !strings.Contains(err.Error(), "more than 1000 entries") {
		t.Errorf("%d entries, %v", n, err)
	}
}

func TestLinksOut(t *testing.T) {
	for want, headers := range map[string][]tar.Header{
		`"l": link leads out of the directory`:       {link("l", "../.."), reg("l/x", "x")},
		`"abs": link leads out of the directory`:     {link("abs", "/tmp"), reg("abs/x", "x")},
		`"s/u": leads through a link`:                {link("s", "."), link("s/u", ".."), reg("s/u/x", "x")},
		`"p/q/x": link leads out of the directory`:   {reg("p/q/f", ""), link("p/q/l", "../.."), link("p/q/x", "l/.."), reg("p/q/x/y", "x")},
		`"later/x": link leads out of the directory`: {reg("later/f", ""), link("later/x", "l/../y"), link("later/l", ".."), reg("later/x/y", "x")},
	} {
		_, is, err := unpacked(t, ".tar.zst", pack(t, ".tar.zst", headers...))
		if !is || err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, %v; want %s", is, err, want)
		}
		_, _, err = unpacked(t, ".tar.gz", pack(t, ".tar.gz", headers...))
		if err == nil {
			t.Errorf("%s: written through a link that leads out", want)
		}
		if dir, _, err := unpacked(t, ".tar.gz", pack(t, ".tar.gz", headers[:len(headers)-1]...)); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A hard link to a link means another place than the link itself, and one through a link may be any file.
func TestHardLinksToLinks(t *testing.T) {
	hard := func(name, to string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to} }
	for what, headers := range map[string][]tar.Header{
		"to a link":      {reg("a/b/f", ""), link("a/b/l", "../../secret"), hard("model.bin", "a/b/l")},
		"through a link": {reg("a/f", "x"), link("l", "a"), hard("model.bin", "l/f")},
		"to a directory": {reg("a/f", "x"), hard("model.bin", "a")},
		"to nothing":     {hard("model.bin", "a")},
	} {
		dir, _, err := unpacked(t, ".tar.zst", pack(t, ".tar.zst", headers...))
		var bad *BadError
		if _, there := os.Lstat(filepath.Join(dir, "model.bin")); !errors.As(err, &bad) || there == nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	dir, _, err := unpacked(t, ".tar.zst", pack(t, ".tar.zst", reg("a/f", "x"), hard("model.bin", "a/f")))
	if text, readErr := os.ReadFile(filepath.Join(dir, "model.bin")); err != nil || string(text) != "x" {
		t.Errorf("to a file: %q, %v, %v", text, readErr, err)
	}
}

func TestDamaged(t *testing.T) {
	for kind, k := range kinds {
		whole := pack(t, kind, reg("a", strings.Repeat("x", 5000)))
		sum := bytes.Clone(whole)
		at := len(sum) - 3 // in the checksum of either
		if kind == ".tar.gz" {
			at = len(sum) - 6
		}
		sum[at] ^= 0xff
		for name, contents := range map[string][]byte{"half": whole[:len(whole)/2], "checksum": sum} {
			_, _, err := unpacked(t, kind, contents)
			var bad *BadError
			if !errors.As(err, &bad) {
				t.Errorf("%s, %s: %v; want a BadError", kind, name, err)
			}
		}
		var bad *BadError
		if _, err := k.unpack("/no/such/file", t.TempDir()); err == nil || errors.As(err, &bad) {
			t.Errorf("%s: no file: %v", kind, err)
		}
	}
}

func TestFullDiskIsNotTheArchives(t *testing.T) {
	var b *BadError
	if err := bad(fmt.Errorf("write: %w", unix.ENOSPC)); errors.As(err, &b) {
		t.Errorf("%v is taken for the archive's own", err)
	}
}

func TestOtherFiles(t *testing.T) {
	var b bytes.Buffer
	z, _ := zstd.NewWriter(&b)
	_, _ = z.Write([]byte(strings.Repeat("no archive ", 100)))
	_ = z.Close()
	for name, contents := range map[string][]byte{"empty": nil, "text": []byte("weights"), "compressed text": b.Bytes()} {
		if _, is, err := unpacked(t, ".tar.zst", contents); is || err != nil {
			t.Errorf("%s: %v, %v", name, is, err)
		}
		if name == "compressed text" {
			continue
		}
		var bad *BadError
		if _, _, err := unpacked(t, ".tar.gz", contents); !errors.As(err, &bad) {
			t.Errorf("%s as .tar.gz: %v", name, err)
		}
	}
}

// FuzzUnpack unpacks archives of a few entries, each a kind and two names made of few words, into a directory beside
// a file that may neither change nor be read through what was unpacked.
func FuzzUnpack(f *testing.F) {
	f.Add("r a b\nr l c", true)
	f.Add("s l ../x\nr l/y x", false)
	f.Add("h d d\nd d .", true)
	f.Add("r p/q/f x\ns p/q/l ../..\ns p/q/x l/../secret", true)
	f.Add("r a/b/f x\ns a/b/l ../../secret\nh m a/b/l", true)
	f.Add("d a .\ns a/x b/../../secret\ns a/b .", true)
	types := map[string]byte{"r": tar.TypeReg, "s": tar.TypeSymlink, "h": tar.TypeLink, "d": tar.TypeDir, "f": tar.TypeFifo, "g": tar.TypeXGlobalHeader}
	f.Fuzz(func(t *testing.T, entries string, zst bool) {
		kind := ".tar.gz"
		if zst {
			kind = ".tar.zst"
		}
		var b bytes.Buffer
		z := kinds[kind].compress(&b)
		w := tar.NewWriter(z)
		for line := range strings.Lines(entries) {
			typ, names, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			name, to, _ := strings.Cut(names, " ")
			_ = w.WriteHeader(&tar.Header{Name: name, Typeflag: types[typ], Linkname: to, Mode: 0o644})
		}
		_ = w.Close()
		_ = z.Close()
		around := t.TempDir()
		dir, canary, file := filepath.Join(around, "into"), filepath.Join(around, "secret"), filepath.Join(t.TempDir(), "a"+kind)
		for path, text := range map[string]string{canary: "secret", file: b.String()} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_, _ = kinds[kind].unpack(file, dir)
		info, err := os.Stat(canary)
		if text, readErr := os.ReadFile(canary); err != nil || readErr != nil || string(text) != "secret" || info.Sys().(*syscall.Stat_t).Nlink != 1 {
			t.Errorf("the file beside the directory: %q, %v", text, err)
		}
		if list, _ := os.ReadDir(around); len(list) != 2 {
			t.Errorf("written outside: %v", list)
		}
		if !zst {
			return // links may lead anywhere
		}
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				t.Error(err)
				return nil
			}
			if real, err := filepath.EvalSymlinks(path); err == nil && real != dir && !strings.HasPrefix(real, dir+"/") {
				t.Errorf("%s leads to %s", path, real)
			}
			return nil
		})
	})
}
