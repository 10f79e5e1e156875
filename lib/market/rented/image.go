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

// Programs are those that the wrapper can use.
var Programs = []string{"sh", "curl", "python3", "wget", "sha256sum"}

// Enough reports whether an image is known to have all that the wrapper needs.
func Enough(c registry.Contents) bool {
	return c.Has("sh") && (c.Has("curl") || c.Has("python3"))
}

// equipped returns an error if an image is known to lack all programs that could stop its instance
// from within. If that is unknown, it returns nil: the container finds out.
func (r *Runner) equipped(ctx context.Context, name string) error {
	if r.Images == nil {
		return nil
	}
	image, err := r.image(ctx, name)
	if errors.Is(err, registry.ErrRefused) || ctx.Err() != nil {
		return err
	}
	c := image.Contents
	if !c.Whole || Enough(c) {
		return nil
	}
	short := task.Clean(name)
	switch {
	case !c.Has("sh"):
		return fmt.Errorf(
			"image %s has no shell: nothing in it can report how the task ends, or stop the instance; use one with /bin/sh", short)
	case !c.Has("wget") || !c.Has("sha256sum"):
		return fmt.Errorf(
			"image %s has neither curl nor python3, nor wget and sha256sum: nothing in it can stop the instance at the end", short)
	case r.Switch.URL == "":
		return fmt.Errorf(
			"image %s has neither curl nor python3 to stop the instance with at the end; set vast_api.switch_url, from where it can fetch vast-switch",
			short)
	}
	return nil
}
