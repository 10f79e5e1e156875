package registry

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/web"
)

// Contents is which programs an image has.
type Contents struct {
	Digest string `json:"digest"` // of the image's configuration
	// Programs are the names of those that were looked for and that are in a directory of
	// the image's PATH.
	Programs []string `json:"programs"`
	// Whole says that every layer was looked at: what is missing is not in the image.
	Whole bool `json:"whole"`
}

// Has reports whether a program was found.
func (c Contents) Has(program string) bool { return slices.Contains(c.Programs, program) }

// Limits of what is read of an image to see what is in it.
const (
	maxLayers   = 200 << 20 // bytes of its layers, as they are transferred
	maxUnpacked = 4 << 30   // bytes of one of them
	maxTime     = 3 * time.Minute
)

// contents looks for the programs in the layers of an image, the smallest first, until it
// has seen enough, all were read, or the next one would be too much or cannot be read.
// Whether layers are what their digests say is not checked.
func (c *Client) contents(ctx context.Context, s *session, m manifest, config configuration) Contents {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	v := view{at: map[string]int{}, gone: map[string]int{}, programs: c.Programs}
	for _, variable := range config.Config.Env {
		if dirs, ok := strings.CutPrefix(variable, "PATH="); ok {
			v.dirs = strings.Split(dirs, ":")
		}
	}
	v.dirs = append(v.dirs, "/bin", "/usr/bin", "/usr/local/bin")
	order := make([]int, len(m.Layers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(m.Layers[a].Size>>10) - int(m.Layers[b].Size>>10) })
	out := Contents{Digest: m.Config.Digest}
	read, left := 0, int64(maxLayers)
	for _, i := range order {
		if left -= m.Layers[i].Size; left < 0 || m.Layers[i].Size < 0 {
			break
		}
		if s.layer(ctx, m.Layers[i].Digest, func(name string) { v.add(i, name) }) != nil {
			return Contents{} // it is read again another time
		}
		read++
		if out.Programs = v.found(); c.Enough(out) {
			return out
		}
	}
	out.Whole = read == len(m.Layers) && read > 0
	return out
}

// view is what layers have been seen to hold, by the number of the layer.
type view struct {
	programs, dirs []string
	at, gone       map[string]int
}

// add notes an entry of a layer: a file, or that lower layers' ones are gone.
func (v *view) add(layer int, name string) {
	dir, base := path.Split(path.Clean("/" + name))
	dir = path.Clean(dir)
	if base == ".wh..wh..opq" {
		v.gone[dir] = max(v.gone[dir], layer)
		return
	}
	if hidden, ok := strings.CutPrefix(base, ".wh."); ok {
		file := path.Join(dir, hidden)
		v.gone[file] = max(v.gone[file], layer)
		return
	}
	if slices.Contains(v.programs, base) && slices.Contains(v.dirs, dir) {
		file := path.Join(dir, base)
		if seen, ok := v.at[file]; !ok || seen < layer {
			v.at[file] = layer
		}
	}
}

// found are the programs that are not hidden by a layer above.
func (v *view) found() []string {
	var out []string
	for file, layer := range v.at {
		hidden := false
		for p := file; p != "/"; p = path.Dir(p) {
			if by, ok := v.gone[p]; ok && by > layer {
				hidden = true
			}
		}
		if name := path.Base(file); !hidden && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// layer calls a function with the name of each file of a layer.
func (s *session) layer(ctx context.Context, digest string, file func(name string)) error {
	if !versionPattern.MatchString(digest) {
		return fault.Errorf(fault.Unavailable, "registry %s: it has an invalid digest", s.ref.host)
	}
	req, err := http.NewRequestWithContext(web.Leaves(ctx), http.MethodGet, s.address("blobs/"+digest), nil)
	if err != nil {
		return fmt.Errorf("%w: invalid address", ErrRefused)
	}
	req.Header.Set("User-Agent", "ponos")
	if s.auth != "" {
		req.Header.Set("Authorization", s.auth)
	}
	client := web.Guard(s.client.HTTP)
	client.Timeout = 0 // a layer takes longer than an answer; the context bounds it
	resp, err := client.Do(req)
	if err != nil {
		return fault.Errorf(fault.Unavailable, "registry %s: a layer could not be fetched", s.ref.host)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fault.Errorf(fault.Unavailable, "registry %s: status %d for a layer", s.ref.host, resp.StatusCode)
	}
	if err := names(resp.Body, file); err != nil {
		return fault.Errorf(fault.Unavailable, "registry %s: a layer cannot be read: %w", s.ref.host, err)
	}
	return nil
}

// names reads a layer: a tar archive, as it is or compressed with gzip or zstd.
func names(r io.Reader, file func(name string)) error {
	buffered := bufio.NewReader(io.LimitReader(r, maxLayers))
	start, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var plain io.Reader = buffered
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return err
		}
		defer z.Close()
		plain = z
	case bytes.HasPrefix(start, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderMaxMemory(256<<20), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		defer z.Close()
		plain = z
	}
	archive := tar.NewReader(io.LimitReader(plain, maxUnpacked))
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeDir {
			file(h.Name)
		}
	}
}
