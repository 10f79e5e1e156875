package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// layer is an archive with files; sum is where the fake registry has it.
func layer(t *testing.T, pack string, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	switch pack {
	case "gzip":
		z := gzip.NewWriter(&out)
		if _, err := z.Write(b.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	case "zstd":
		z, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(b.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	return b.String()
}

func TestContents(t *testing.T) {
	const huge = maxLayers + 1
	wanted := []string{"sh", "curl", "python3", "wget"}
	enough := func(c Contents) bool { return c.Has("sh") && (c.Has("curl") || c.Has("python3")) }
	type part struct {
		text string
		size int64
	}
	of := func(text string) part { return part{text, int64(len(text))} }
	for name, c := range map[string]struct {
		env    string
		layers []part
		want   string
		whole  bool
	}{
		"debian":           {layers: []part{of(layer(t, "gzip", "usr/bin/sh", "etc/curl")), of(layer(t, "gzip", "./usr/bin/curl"))}, want: "curl sh"},
		"alpine":           {layers: []part{of(layer(t, "zstd", "bin/busybox", "bin/sh", "usr/bin/wget"))}, want: "sh wget", whole: true},
		"distroless":       {layers: []part{of(layer(t, "", "app/server", "app/sh"))}, want: "", whole: true},
		"conda":            {env: "/opt/conda/bin:/bin", layers: []part{of(layer(t, "gzip", "bin/sh", "opt/conda/bin/python3"))}, want: "python3 sh"},
		"removed":          {layers: []part{of(layer(t, "gzip", "bin/sh", "usr/bin/wget")), of(layer(t, "gzip", "usr/bin/.wh.wget", "x"))}, want: "sh", whole: true},
		"removed and back": {layers: []part{of(layer(t, "gzip", "bin/sh", "usr/bin/wget")), of(layer(t, "gzip", "usr/bin/.wh..wh..opq")), of(layer(t, "gzip", "usr/bin/wget", "x", "y"))}, want: "sh wget", whole: true},
		"too large":        {layers: []part{of(layer(t, "gzip", "bin/sh")), {layer(t, "gzip", "usr/bin/curl"), huge}}, want: "sh"},
		"no layers":        {want: ""},
		"no archive":       {layers: []part{of("this is none, and long enough to be read as one: " + strings.Repeat("x", 600))}},
	} {
		t.Run(name, func(t *testing.T) {
			config := fmt.Sprintf(`{"config":{"Env":["A=b","PATH=%s"]}}`, c.env)
			f := newFake(t, config)
			var list []string
			for _, l := range c.layers {
				f.docs["blobs/"+digest(l.text)] = l.text
				list = append(list, fmt.Sprintf(`{"digest":%q,"size":%d}`, digest(l.text), l.size))
			}
			f.docs["manifests/1"] = fmt.Sprintf(`{"config":{"digest":%q},"layers":[%s]}`, digest(config), strings.Join(list, ","))
			image := strings.TrimPrefix(f.URL, "http://") + "/team/worker:1"
			client := New("-u me -p hush " + strings.TrimPrefix(f.URL, "http://"))
			client.Programs, client.Enough = wanted, enough
			first, err := client.Image(t.Context(), image, Contents{})
			got := first.Contents
			if err != nil || strings.Join(got.Programs, " ") != c.want || got.Whole != c.whole {
				t.Errorf("%+v, %v; want %q, %v", got, err, c.want, c.whole)
			}
			// What is known of the same image is not read again.
			f.docs = map[string]string{"manifests/1": f.docs["manifests/1"], "blobs/" + digest(config): config}
			if again, err := client.Image(t.Context(), image, got); err != nil || !slices.Equal(again.Contents.Programs, got.Programs) || again.Contents.Whole != got.Whole {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

func FuzzNames(f *testing.F) {
	f.Add([]byte("\x1f\x8b"))
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	f.Add(bytes.Repeat([]byte("x"), 1024))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		if err := names(bytes.NewReader(data), func(string) { n++ }); err != nil && n > len(data)*1000 {
			t.Errorf("%d names of %d bytes, %v", n, len(data), err)
		}
	})
}
