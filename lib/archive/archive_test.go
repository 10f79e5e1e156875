package archive

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// pack makes an archive of headers; a file's contents is its link name.
func pack(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, h := range headers {
		contents := ""
		if h.Typeflag == tar.TypeReg {
			contents, h.Linkname = h.Linkname, ""
			h.Size = int64(len(contents))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(contents)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpacked unpacks into a directory within another, of which nothing but it may
// change.
func unpacked(t testing.TB, contents []byte) (dir string, is bool, err error) {
	t.Helper()
	around := t.TempDir()
	dir = filepath.Join(around, "into")
	file := filepath.Join(t.TempDir(), "a.tar.zst")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, contents, 0o644); err != nil {
		t.Fatal(err)
	}
	is, err = Unpack(file, dir)
	if list, _ := os.ReadDir(around); len(list) != 1 {
		t.Errorf("written outside: %v", list)
	}
	return dir, is, err
}

func reg(name, contents string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Linkname: contents}
}

func TestUnpack(t *testing.T) {
	run := reg("bin/run", "x")
	run.Mode = 0o755
	archive := pack(t, tar.Header{Name: "./", Typeflag: tar.TypeDir}, reg("./model.pth", "weights"), run,
		tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, reg("d/e/f", "deep"),
		tar.Header{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../model.pth"},
		tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "model.pth"})
	dir, is, err := unpacked(t, archive)
	if !is || err != nil {
		t.Fatal(is, err)
	}
	file := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(file, archive, 0o644); err != nil {
		t.Fatal(err)
	}
	if is, err := Unpack(file, dir); !is || err != nil {
		t.Errorf("unpacked again: %v, %v", is, err)
	}
	for name, want := range map[string]string{"model.pth": "weights", "bin/run": "x", "d/e/f": "deep", "d/l": "weights", "h": "weights"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "bin/run")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("program: %v, %v", info, err)
	}
}

func TestUnpackHostile(t *testing.T) {
	for want, headers := range map[string][]tar.Header{
		`"../x": leads out of the directory`:      {reg("../x", "x")},
		`"/x": leads out of the directory`:        {reg("/x", "x")},
		`"a/../../x": leads out of the directory`: {reg("a/../../x", "x")},
		`"l": link leads out of the directory`:    {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../.."}, reg("l/x", "x")},
		`"abs": link leads out of the directory`:  {{Name: "abs", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, reg("abs/x", "x")},
		`"hard": link leads out of the directory`: {{Name: "hard", Typeflag: tar.TypeLink, Linkname: "../into/../x"}},
		`"s/u": link leads out of the directory`: {{Name: "s", Typeflag: tar.TypeSymlink, Linkname: "."},
			{Name: "s/u", Typeflag: tar.TypeSymlink, Linkname: ".."}},
		`"pipe": entry of type '6'`: {{Name: "pipe", Typeflag: tar.TypeFifo}},
	} {
		_, is, err := unpacked(t, pack(t, headers...))
		if !is || err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, %v; want %s", is, err, want)
		}
	}
}

func TestUnpackOther(t *testing.T) {
	var b bytes.Buffer
	z, _ := zstd.NewWriter(&b)
	_, _ = z.Write([]byte(strings.Repeat("no archive ", 100)))
	_ = z.Close()
	whole := pack(t, reg("a", strings.Repeat("x", 5000)))
	for name, tt := range map[string]struct {
		contents []byte
		is, bad  bool
	}{
		"empty":           {nil, false, false},
		"text":            {[]byte("weights"), false, false},
		"compressed text": {b.Bytes(), false, false},
		"half":            {whole[:len(whole)/2], false, true},
	} {
		_, is, err := unpacked(t, tt.contents)
		if is != tt.is && !tt.bad || (err != nil) != tt.bad {
			t.Errorf("%s: %v, %v", name, is, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add("a", "b", "c", byte(tar.TypeReg))
	f.Add("l", "../x", "l/y", byte(tar.TypeSymlink))
	f.Add("d", "d", "d", byte(tar.TypeLink))
	f.Fuzz(func(t *testing.T, name, link, then string, kind byte) {
		var b bytes.Buffer
		z, _ := zstd.NewWriter(&b)
		w := tar.NewWriter(z)
		_ = w.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Linkname: link, Mode: 0o644})
		_ = w.WriteHeader(&tar.Header{Name: then, Typeflag: tar.TypeReg, Mode: 0o644})
		_ = w.Close()
		_ = z.Close()
		_, _, _ = unpacked(t, b.Bytes())
	})
}
