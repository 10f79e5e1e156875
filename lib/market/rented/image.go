package rented

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/registry"
	"github.com/ponos-tools/ponos/lib/task"
)

// How long to remember the answer of a registry, that a registry could not be reached, and the
// contents of an image that may be unchanged. Without that, tasks that wait for a machine would ask
// in each turn.
const (
	imageTime   = time.Hour
	failureTime = time.Minute
	forgetTime  = 30 * 24 * time.Hour
)

// remembered is what a registry has answered about an image.
type remembered struct {
	registry.Image
	At      time.Time `json:"at"`
	Failure string    `json:"failure,omitempty"`
}

// image returns what an image runs by itself, and which programs it has.
func (r *Runner) image(ctx context.Context, name string) (registry.Image, error) {
	if err := r.prepare(); err != nil {
		return registry.Image{}, err
	}
	path := filepath.Join(r.Dir, "images.json")
	// Tasks that are started together mostly have the same image.
	waiting, cancel := r.waiting(ctx)
	defer cancel()
	held, err := lock.Wait(waiting, path+".lock")
	if err != nil {
		return registry.Image{}, err
	}
	defer held.Close()
	all := map[string]remembered{}
	if b, err := os.ReadFile(path); err == nil {
		if json.Unmarshal(b, &all) != nil {
			all = map[string]remembered{} // it is rebuilt
		}
	}
	now := r.now()
	known := all[name]
	limit := imageTime
	if known.Failure != "" {
		limit = failureTime
	}
	if age := now.Sub(known.At); age >= 0 && age <= limit {
		if known.Failure != "" {
			return known.Image, errors.New(known.Failure)
		}
		return known.Image, nil
	}
	image, err := r.Images(ctx, name, known.Contents)
	switch {
	case errors.Is(err, registry.ErrRefused):
		return image, fmt.Errorf("image %s: %w", task.Clean(name), err)
	case ctx.Err() != nil:
		return image, context.Cause(ctx)
	}
	m := remembered{Image: image, At: now}
	if err != nil {
		m.Contents, m.Failure = known.Contents, fault.Text(err)
	}
	for key, old := range all {
		if now.Sub(old.At) > forgetTime {
			delete(all, key)
		}
	}
	all[name] = m
	if b, err := json.Marshal(all); err == nil {
		_ = renameio.WriteFile(path, b, 0o600, renameio.WithTempDir(r.Dir)) // without it, the registry is asked again
	}
	return image, err
}

// Programs are those that the loader of vast-entry can use.
var Programs = entry.Programs

// Enough reports whether an image is known to have all that the loader needs.
func Enough(c registry.Contents) bool {
	_, ok := entry.Loads(c.Has)
	return ok
}

// equipped returns an error if an image is known to lack what fetches vast-entry. If that is unknown, it returns nil: the
// container finds out.
func (r *Runner) equipped(ctx context.Context, name string) error {
	if r.Images == nil {
		return nil
	}
	image, err := r.image(ctx, name)
	if errors.Is(err, registry.ErrRefused) || ctx.Err() != nil {
		return err
	}
	if lacks, ok := entry.Loads(image.Contents.Has); image.Contents.Whole && !ok {
		return fmt.Errorf("image %s cannot fetch vast-entry, which runs the task and ends the instance: %s; use one with a shell, "+
			"sha256sum, and one of curl, wget and python3", task.Clean(name), lacks)
	}
	return nil
}
