package vast

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/registry"
	"github.com/ponos-tools/ponos/lib/task"
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

// Programs are those that the wrapper has a use for, and Enough says when there is no
// more to look for.
var Programs = []string{"sh", "curl", "python3", "wget", "sha256sum"}

// Enough reports whether an image is known to have what the wrapper needs.
func Enough(c registry.Contents) bool {
	return c.Has("sh") && (c.Has("curl") || c.Has("python3"))
}

// looked is what is remembered of an image's programs.
type looked struct {
	registry.Contents
	At time.Time `json:"at"`
}

// lookTime bounds the look into an image. What it does not show, the container finds out.
const lookTime = 3 * time.Minute

// equipped reports why an image is known to have nothing by which its instance could be
// stopped from within. Of what is not known, it reports nothing.
func (r *Runner) equipped(ctx context.Context, name string) error {
	if r.Contents == nil {
		return nil
	}
	c, err := r.contents(ctx, name)
	if err != nil || !c.Whole || Enough(c) {
		return err
	}
	short := task.Clean(name)
	switch {
	case !c.Has("sh"):
		return fmt.Errorf("image %s has no shell: nothing in it can report how the task ends, or stop the instance; use one with /bin/sh", short)
	case !c.Has("wget") || !c.Has("sha256sum"):
		return fmt.Errorf("image %s has neither curl nor python3, nor wget and sha256sum: nothing in it can stop the instance at the end", short)
	case r.Switch.URL == "":
		return fmt.Errorf("image %s has neither curl nor python3 to stop the instance with at the end; set vast_api.switch_url, from where it can fetch vast-switch", short)
	}
	return nil
}

// contents looks for programs in an image, unless it is known and has not changed.
func (r *Runner) contents(ctx context.Context, name string) (registry.Contents, error) {
	if err := r.prepare(); err != nil {
		return registry.Contents{}, err
	}
	path := filepath.Join(r.Dir, "programs.json")
	held, err := lock.Wait(ctx, path+".lock") // the same image is not read twice at a time
	if err != nil {
		return registry.Contents{}, err
	}
	defer held.Close()
	all := map[string]looked{}
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &all) != nil {
		all = map[string]looked{} // it is made anew
	}
	now := r.now()
	known := all[name]
	if age := now.Sub(known.At); known.Digest != "" && age >= 0 && age < imageTime {
		return known.Contents, nil
	}
	bounded, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	c, err := r.Contents(bounded, name, known.Contents)
	switch {
	case errors.Is(err, registry.ErrRefused):
		return c, fmt.Errorf("image %s: %w", task.Clean(name), err)
	case ctx.Err() != nil:
		return c, context.Cause(ctx)
	case err != nil: // not asked again for a while, as with what is not known
		c = registry.Contents{Digest: "unknown"}
	}
	for key, l := range all {
		if now.Sub(l.At) > 30*24*time.Hour {
			delete(all, key)
		}
	}
	all[name] = looked{c, now}
	if b, err := json.Marshal(all); err == nil {
		_ = renameio.WriteFile(path, b, 0o600, renameio.WithTempDir(r.Dir)) // without it, the image is looked at again
	}
	return c, nil
}
