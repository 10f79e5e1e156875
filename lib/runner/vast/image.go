package vast

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/registry"
)

// How long it is remembered what a registry has said, and that it could not be asked.
// Tasks that wait for a machine would have it asked at each turn.
const (
	imageTime   = time.Hour
	failureTime = time.Minute
)

// remembered is what a registry has said of an image.
type remembered struct {
	registry.Image
	At      time.Time `json:"at"`
	Failure string    `json:"failure,omitempty"`
}

// image tells what an image runs by itself.
func (r *Runner) image(ctx context.Context, name string) (registry.Image, error) {
	if err := r.prepare(); err != nil {
		return registry.Image{}, err
	}
	path := filepath.Join(r.Dir, "images.json")
	// Tasks that are started together have mostly the same image.
	held, err := lock.Wait(ctx, path+".lock")
	if err != nil {
		return registry.Image{}, err
	}
	defer held.Close()
	all := map[string]remembered{}
	if b, err := os.ReadFile(path); err == nil {
		if json.Unmarshal(b, &all) != nil {
			all = map[string]remembered{} // it is made anew
		}
	}
	now := r.now()
	for key, m := range all {
		age, limit := now.Sub(m.At), imageTime
		if m.Failure != "" {
			limit = failureTime
		}
		if age < 0 || age > limit {
			delete(all, key)
		}
	}
	if m, ok := all[name]; ok && m.Failure != "" {
		return registry.Image{}, errors.New(m.Failure)
	} else if ok {
		return m.Image, nil
	}
	image, err := r.Images(ctx, name)
	if errors.Is(err, registry.ErrRefused) || ctx.Err() != nil {
		return image, err
	}
	m := remembered{Image: image, At: now}
	if err != nil {
		m.Failure = err.Error()
	}
	all[name] = m
	b, marshalErr := json.Marshal(all)
	if marshalErr == nil {
		_ = renameio.WriteFile(path, b, 0o600, renameio.WithTempDir(r.Dir)) // without it, the registry is asked again
	}
	return image, err
}
