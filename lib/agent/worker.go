package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/task"
)

// worker is the configuration of a worker in its repository: an entry of .arkindex.yml, or a whole
// file of arkindex/.
type worker struct {
	Slug   string `yaml:"slug"`
	Docker struct {
		Command *string `yaml:"command"`
	} `yaml:"docker"`
}

// commandOf returns the command of a task. For a worker it is the command of the repository's
// configuration, or else the definition's own. Without a worker it is the definition's own, or
// else that of the repository's only worker.
func commandOf(t task.Task, source string) ([]string, error) {
	if t.Worker == "" && len(t.Command) > 0 {
		return t.Command, nil
	}
	workers, err := readWorkers(source)
	if err != nil {
		return nil, err
	}
	for _, w := range workers {
		only := t.Worker == "" && len(workers) == 1
		if (w.Slug == t.Worker && t.Worker != "" || only) && w.Docker.Command != nil && *w.Docker.Command != "" {
			words, err := task.SplitCommand(*w.Docker.Command)
			if err != nil {
				return nil, fmt.Errorf("worker %q: docker.command: %w", task.Clean(w.Slug), err)
			}
			return words, nil
		}
	}
	if len(t.Command) > 0 {
		return t.Command, nil
	}
	if t.Worker != "" {
		return nil, fmt.Errorf(
			"no command: neither the task nor the repository's .arkindex.yml or arkindex/*.yml has one for worker %q", task.Clean(t.Worker))
	}
	return nil, errors.New("no command: neither the task nor one worker of the repository's .arkindex.yml or arkindex/*.yml has one")
}

// maxWorkerFile limits a worker's configuration file in bytes.
const maxWorkerFile = 1 << 20

// readWorkers reads .arkindex.yml (version 2), with the files that it names, and arkindex/*.yml. A
// repository may have none of them.
func readWorkers(source string) ([]worker, error) {
	root, err := os.OpenRoot(source) // no link or path leads out of it
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var workers []worker
	var old struct {
		Version int         `yaml:"version"`
		Workers []yaml.Node `yaml:"workers"`
	}
	switch err := readYAML(root, ".arkindex.yml", &old); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case old.Version != 2:
		return nil, fmt.Errorf(".arkindex.yml: version %d is not known, only 2", old.Version)
	}
	for _, node := range old.Workers {
		if node.Kind != yaml.ScalarNode {
			var w worker
			if err := node.Decode(&w); err != nil {
				return nil, fmt.Errorf(".arkindex.yml: %w", err)
			}
			workers = append(workers, w)
			continue
		}
		found, err := globWorkers(root, source, node.Value)
		if err != nil {
			return nil, err
		}
		workers = append(workers, found...)
	}
	found, err := globWorkers(root, source, "arkindex/*.yml")
	return append(workers, found...), err
}

func globWorkers(root *os.Root, source, pattern string) ([]worker, error) {
	if !filepath.IsLocal(pattern) {
		return nil, fmt.Errorf(".arkindex.yml: %q leads out of the repository", task.Clean(pattern))
	}
	paths, err := fs.Glob(os.DirFS(source), pattern)
	if err != nil {
		return nil, fmt.Errorf(".arkindex.yml: %q: %w", task.Clean(pattern), err)
	}
	slices.Sort(paths)
	var workers []worker
	for _, path := range paths {
		var w worker
		if err := readYAML(root, path, &w); err != nil {
			return nil, err
		}
		workers = append(workers, w)
	}
	return workers, nil
}

func readYAML(root *os.Root, path string, into any) error {
	f, err := root.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxWorkerFile {
		return fmt.Errorf("%s: not a file of at most %d bytes", task.Clean(path), maxWorkerFile)
	}
	if err := yaml.NewDecoder(f).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", task.Clean(path), err)
	}
	return nil
}
